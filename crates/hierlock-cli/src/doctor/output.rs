//! Findings as text and as JSON.

use crate::output::{counted, escape_controls, json_line};
use hierlock::checks::{Area, Finding, Severity};
use hierlock::{Diagnosis, ServerUrl};
use serde_json::{Value, json};

const NAME_WIDTH: usize = 26;

pub(super) fn json_text(url: &ServerUrl, diagnosis: &Diagnosis) -> String {
    json_line(&json!({
        "url": url.to_string(),
        "severity": diagnosis.severity().name(),
        "findings": diagnosis.findings.iter().map(finding_json).collect::<Value>(),
    }))
}

fn finding_json(finding: &Finding) -> Value {
    json!({
        "check": finding.check.name,
        "area": finding.check.area.name(),
        "severity": finding.severity.name(),
        "message": finding.message,
        "why": finding.check.why,
        "fix": finding.fix,
    })
}

/// Returns one line per finding, grouped by area. Warnings and problems also have a reason and a fix; with `verbose` all
/// findings have a reason.
pub(super) fn text(
    url: &ServerUrl,
    diagnosis: &Diagnosis,
    verbose: bool,
    has_colour: bool,
) -> String {
    let mut text = format!("{url}\n");
    for area in [Area::Server, Area::Settings, Area::Connections, Area::Locks] {
        let mut findings = diagnosis.findings.iter().filter(|it| it.check.area == area).peekable();
        if findings.peek().is_some() {
            text += &format!("\n{}\n", area.name());
        }
        for finding in findings {
            text += &finding_text(finding, verbose, has_colour);
        }
    }
    text + &format!("\n{}\n", summary(diagnosis))
}

fn finding_text(finding: &Finding, verbose: bool, has_colour: bool) -> String {
    let Finding { check, severity, message, fix } = finding;
    let (mark, colour) = match severity {
        Severity::Ok => ("✓", "32"),
        Severity::Skipped => ("-", "2"),
        Severity::Warning => ("!", "33"),
        Severity::Problem => ("✗", "31"),
    };
    let mark =
        if has_colour { format!("\u{1b}[{colour}m{mark}\u{1b}[0m") } else { mark.to_owned() };
    let mut text = format!("  {mark} {:NAME_WIDTH$} {}\n", check.name, escape_controls(message));
    if verbose || *severity >= Severity::Warning {
        text += &format!("      why  {}\n", check.why);
    }
    if let Some(fix) = fix {
        text += &format!("      fix  {}\n", escape_controls(fix));
    }
    text
}

fn summary(diagnosis: &Diagnosis) -> String {
    let count = |severity| {
        let all = diagnosis.findings.iter();
        all.filter(|finding| finding.severity == severity).count() as u64
    };
    let (problems, warnings) = (count(Severity::Problem), count(Severity::Warning));
    let (fine, skipped) = (count(Severity::Ok), count(Severity::Skipped));
    format!(
        "{}, {}, {fine} ok, {skipped} skipped",
        counted(problems, "problem"),
        counted(warnings, "warning")
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use hierlock::checks::Check;

    const CHECK: Check = Check { name: "some-check", area: Area::Server, why: "it matters" };

    #[test]
    fn problems_are_printed_with_reason_and_fix() {
        let wrong = CHECK.problem("it is \u{1b}[2Jwrong", "mend it");
        assert_eq!(
            finding_text(&wrong, false, false),
            format!(
                "  ✗ {:NAME_WIDTH$} it is \\u{{1b}}[2Jwrong\n      why  it matters\n      fix  mend it\n",
                "some-check"
            )
        );
        let fine = CHECK.ok("it is fine");
        let line = format!("  ✓ {:NAME_WIDTH$} it is fine\n", "some-check");
        assert_eq!(finding_text(&fine, false, false), line);
        assert_eq!(finding_text(&fine, true, false), format!("{line}      why  it matters\n"));
        assert!(finding_text(&fine, false, true).contains("\u{1b}[32m✓\u{1b}[0m"));
    }
}
