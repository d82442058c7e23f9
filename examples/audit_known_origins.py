"""Train models in known ways, and check whether fastcos.audit recognises how they were trained.

    python examples/audit_known_origins.py --data DATA

There are ten ways to train. The script trains ten models in each way, and audits each model twice.
In the first audit, the script states whether the loss had weight decay on both users and items; in
the second audit, it states that this is unknown. To judge the reports, the script itself computes
the condition of the map from each form to the factors, without fastcos.audit. A report is wrong in
each of these cases:

- The report names a form that the factors do not have, or does not name the form that they have.
- The report says that weight decay chose the scale of the dimensions, but the factors are not
  balanced, or the audit was not told that both users and items had weight decay.
- The audit was told that both users and items had weight decay, which would have balanced the
  factors. The factors are not balanced, but the report does not point out this contradiction.
- The report says that the scale depends on the initialisation, but the factors have one of the
  forms, or the audit was not told that weight decay was missing on users or items.
- The report says that the algorithm chose the scale, but the factors are not balanced, or the audit
  was not told that weight decay was missing on users or items.

DATA is a folder that contains the folder ml-latest-small, with which the script trains the models
of the package implicit. Without --data, these models are left out. The script takes about ten
minutes on one core.
"""

import argparse
from pathlib import Path

import numpy as np
import scipy.linalg
from factor_training import movielens, simulated, slopes, train

import fastcos
from fastcos.auditing import gradient_noise

RANK, SEEDS = 8, 10
# According to its documentation, the audit recognises a form if the condition number of the map
# from the factors to this form is below a limit. SAME_NOISE is the limit for the form that gradient
# noise produces. SAME is the limit for all other forms.
SAME, SAME_NOISE = 1.05, 1.1
NONE, USERS, BOTH = (0.0, 0.0), (3.0, 0.0), (3.0, 3.0)


def origins(has_data):
    """Yield (label, epochs, recipe, has_decay) for each way to train.

    has_decay: whether the loss has weight decay on both users and items.
    """
    yield "ALS, no decay", 100, {"by": "als", "start": 0.5, "decays": NONE}, False
    yield "ALS, decay on users", 100, {"by": "als", "start": 0.5, "decays": USERS}, False
    yield "ALS, decay on both", 200, {"by": "als", "start": 0.5, "decays": BOTH}, True
    yield "gradient descent, small start", 1000, {"by": "gd", "start": 0.05, "step": 4e-4}, False
    yield "gradient descent, large start", 1000, {"by": "gd", "start": 1.0, "step": 4e-4}, False
    sgd = {"by": "sgd", "start": 0.5, "batch": 1}
    yield "SGD, short", 20, sgd | {"step": 0.003}, False
    yield "SGD, long", 300, sgd | {"step": 0.01}, False
    adam = {"by": "adam", "start": 0.5, "batch": 512}
    yield "Adam, rate 0.001", 100, adam | {"step": 0.001}, False
    yield "Adam, rate 0.01", 200, adam | {"step": 0.01}, False
    if has_data:
        implicit = {"by": "implicit", "start": 0.01, "decays": (0.01, 0.01), "rank": 100}
        yield "implicit, its defaults", 15, implicit, True


def conditions(P, Q, noise):
    """Return a dict with the name of each form and the condition of the map from this form to Q.

    Q contains the items of the model. The forms are computed from the singular value decomposition
    of the product PQ'.
    """
    left, R_left = np.linalg.qr(P)
    right, R_right = np.linalg.qr(Q)
    U, singular, Vt = np.linalg.svd(R_left @ R_right.T)
    items, users = right @ Vt.T, left @ U
    root = np.sqrt(singular)
    found = {
        name: np.linalg.cond(np.linalg.lstsq(form, Q, rcond=None)[0])
        for name, form in (
            ("balanced", items * root),
            ("items_orthonormal", items),
            ("users_orthonormal", items * singular),
        )
    }
    if noise is not None:
        items, users = items * root, users * root
        of_items = (items.T * noise.item_weights) @ items
        of_users = (users.T * noise.user_weights) @ users
        half = scipy.linalg.sqrtm(of_items).real
        inverse = np.linalg.inv(half)
        rest = inverse @ scipy.linalg.sqrtm(half @ of_users @ half).real @ inverse
        G = np.linalg.lstsq(items, Q, rcond=None)[0]
        ratios = scipy.linalg.eigh(rest, G @ G.T, eigvals_only=True)
        found["noise_balanced"] = float(np.sqrt(ratios[-1] / ratios[0]))
    return found


def faults(report, truth, told):
    """Return the mistakes in the report of an audit, as a list of sentences."""
    limits = {name: SAME_NOISE if name == "noise_balanced" else SAME for name in truth}
    forms = {name for name, condition in truth.items() if condition < limits[name]}
    is_balanced = bool(forms & {"balanced", "noise_balanced"})
    text = f"{report.headline} {report.verdict}"
    wrong = []
    if report.parametrization is None and forms:
        wrong.append(f"the report names no form, but the factors have the forms {sorted(forms)}")
    if report.parametrization is not None and report.parametrization not in forms:
        wrong.append(f"the report names {report.parametrization}, but the conditions are {truth}")
    if not report.is_free or "chose the scale" in text or "which chooses the scale" in text:
        if told != "both" or not is_balanced:
            wrong.append("the report says that training chose the scale")
    elif told == "both" and "training has not converged" not in text:
        wrong.append("the report does not object although the factors are not balanced")
    if "therefore depends on the initialisation" in text and (forms or told != "not both"):
        wrong.append("the report says that the scale depends on the initialisation")
    names_algorithm = "The algorithm, not the loss, chose this scale" in text
    if names_algorithm and (not is_balanced or told != "not both"):
        wrong.append("the report says that the algorithm chose the scale")
    return wrong


def judged(label, epochs, recipe, has_decay, seed, folder):
    """Train one model, audit it twice, and yield three values for each audit.

    The first value is the argument weight_decay_on of the audit. The second is the report of the
    audit, and the third lists the mistakes in this report.
    """
    if recipe["by"] == "implicit":
        data = movielens(folder)
    else:  # even seeds use one noise level, and odd seeds use two levels
        data = simulated((1.0, 1.0) if seed % 2 == 0 else (0.4, 2.0), seed=seed)
    *_, (P, Q) = train(data, recipe.get("rank", RANK), recipe, [epochs], seed)
    noise = None
    if recipe["by"] == "sgd":
        noise = gradient_noise(Q, P, slopes(data, P, Q), step=recipe["step"])
    truth = conditions(P, Q, noise)
    for told in ("both" if has_decay else "not both", "unknown"):
        report = fastcos.audit(Q, P, trained_on="dot", weight_decay_on=told, gradient_noise=noise)
        yield told, report, faults(report, truth, told)


def main():
    """Judge all reports, and print a row of a table for each way to train."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, help="folder that contains the data sets")
    parser.add_argument("--only", help="train only in this way, such as 'SGD, long'")
    given = parser.parse_args()
    print(
        "| trained by | form that the audit names (number of models) "
        "| correct audits if `weight_decay_on` was given "
        '| correct audits if `weight_decay_on` was "unknown" |'
    )
    print("|---|---|---:|---:|")
    for label, epochs, recipe, has_decay in origins(given.data is not None):
        if given.only not in (None, label):
            continue
        named, right = [], {True: 0, False: 0}
        for seed in range(SEEDS):
            for told, report, wrong in judged(label, epochs, recipe, has_decay, seed, given.data):
                named.append(report.parametrization or "none")
                right[told == "unknown"] += not wrong
                for fault in wrong:
                    print(f"{label}, seed {seed}, told {told}: {fault}")
        counts = ", ".join(f"{name} {named.count(name) // 2}" for name in sorted(set(named)))
        print(f"| {label} | {counts} | {right[False]} of {SEEDS} | {right[True]} of {SEEDS} |")


if __name__ == "__main__":
    main()
