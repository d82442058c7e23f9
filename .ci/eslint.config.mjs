// The rules of ESLint for the scripts of our pages. .ci/run states the version of ESLint. The set
// "recommended" would need another package, so this file lists the rules that find mistakes.
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
