// Rules for the scripts of pages; .ci/run has the version. ESLint's "recommended" set is a package of
// its own, so that the rules that find mistakes are listed.
export default [
  {
    files: ["**/*.js"],
    languageOptions: {
      ecmaVersion: 2023,
      sourceType: "script",
      globals: Object.fromEntries(
        ["document", "window", "location", "history", "performance",
          "requestAnimationFrame", "setTimeout", "clearTimeout", "addEventListener", "atob",
          "ImageData", "Option", "URLSearchParams"].map((name) => [name, "readonly"]),
      ),
    },
    linterOptions: { reportUnusedDisableDirectives: "error" },
    rules: {
      eqeqeq: "error", "no-undef": "error", "no-unused-vars": "error", "prefer-const": "error",
      "no-var": "error", "no-shadow": "error", "no-eval": "error", "no-implied-eval": "error",
      "no-redeclare": "error", "no-unreachable": "error", "no-constant-condition": "error",
      "no-self-assign": "error", "no-fallthrough": "error", "no-use-before-define": "off",
      "no-loss-of-precision": "error", "use-isnan": "error", "valid-typeof": "error",
    },
  },
];
