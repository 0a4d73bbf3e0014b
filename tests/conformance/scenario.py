"""The scenarios as they are read from their files."""

import json
from pathlib import Path
from typing import Any

from tests.conformance.matching import filled

FOLDER = Path(__file__).parent / "scenarios"


def files() -> list[tuple[Path, Any]]:
    """Every file with what it says."""
    return [(path, json.loads(path.read_text())) for path in sorted(FOLDER.glob("*.json"))]


def scenarios() -> list[dict[str, Any]]:
    """All scenarios, file by file. One with cases is as many as it has: what a case says fills its gaps."""
    found = []
    for _, file in files():
        for scenario in file["scenarios"]:
            cases = scenario.get("cases")
            if cases is None:
                found.append(scenario)
            for case in cases or ():
                found.append(
                    {**scenario, "name": f"{scenario['name']}-{case['case']}", "case": filled(case, {})}
                )
    return found
