"""Write JUnit XML, which CI systems display."""

from __future__ import annotations

from xml.etree import ElementTree as Xml

from zinc_rt.cli.report import Report

MARK = " [SIMULATED]"


def to_junit(report: Report) -> str:
    """Return the report as JUnit XML, one test case per result. A skip has its reason, a failure its measure and
    first bad element. Names mark results of a simulated device."""
    counts = report.counts()
    tiers = set(report.simulated_tiers())
    whole = report.simulated and not tiers
    suite = Xml.Element(
        "testsuite",
        name=f"zinc-rt {report.command}{MARK if report.simulated else ''}",
        tests=str(len(report.results)),
        failures=str(counts.get("fail", 0)),
        skipped=str(counts.get("skip", 0) + counts.get("blocked", 0)),
        timestamp=report.started,
    )
    for result in report.results:
        group, _, name = result.id.rpartition("/")
        own = result.measure.get("simulated") or "simulated" in result.tier  # of the device itself
        mark = MARK if whole or own or tiers & {result.tier, result.reference} else ""
        group = group.replace(".", "_").replace("/", ".")
        case = Xml.SubElement(suite, "testcase", classname=group, name=name + mark)
        if isinstance(seconds := result.measure.get("seconds"), int | float):
            case.set("time", f"{seconds:.3f}")
        if result.status == "fail":
            against = f"{result.kind} against {result.reference}" if result.reference else result.reason
            failure = Xml.SubElement(case, "failure", message=against)
            measure = {key: value for key, value in result.measure.items() if key != "histogram"}
            failure.text = (
                f"measure {measure}\nlimit {result.limit}\nfirst bad {result.first_bad}\n"
                f"cause {result.cause}\nadvice {result.advice}\nrepro {result.repro}"
            )
        elif result.status in ("skip", "blocked"):
            Xml.SubElement(case, "skipped", message=result.reason)
    Xml.indent(suite)
    return Xml.tostring(suite, encoding="unicode", xml_declaration=True)
