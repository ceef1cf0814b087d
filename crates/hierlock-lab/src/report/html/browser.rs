//! Tests of the page in a real browser: headless Chromium. A copy of the page gets a probe, which uses it like a reader
//! would and reports its findings.
//!
//! With `HIERLOCK_SCREENSHOTS=DIR` the page and pictures of it are written to that directory.

use crate::report::fixtures;
use serde_json::{Value, json};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The limit for the browser. It needs a second or two; a busy machine may take more.
const TIMEOUT: Duration = Duration::from_secs(120);

/// Runs before everything else in the page and records errors.
const LISTENER: &str = "<script>window.pageErrors = [];\
    addEventListener('error', (e) => pageErrors.push(String(e.message)));\
    addEventListener('unhandledrejection', (e) => pageErrors.push(String(e.reason)));\
    addEventListener('securitypolicyviolation', (e) => pageErrors.push(e.violatedDirective));</script>";

/// Returns the browser. Without one the test is skipped, except in CI, where it fails.
fn browser() -> Option<PathBuf> {
    let names = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut candidates =
        std::env::split_paths(&path).flat_map(|dir| names.map(|name| dir.join(name)));
    let browser = candidates.find(|file| file.is_file());
    if browser.is_none() {
        let why = "Chromium is not installed; try: ./scripts/install-servers chromium";
        assert!(std::env::var_os("CI").is_none(), "{why}");
        eprintln!("skipped, because {why}");
    }
    browser
}

/// A browser process that is killed by its id on drop.
struct BrowserProcess(Child);

impl Drop for BrowserProcess {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs the browser on a file and returns its standard output and standard error.
fn run(browser: &Path, dir: &Path, page: &Path, args: &[&str]) -> (String, String) {
    let (out, err) = (dir.join("out"), dir.join("err"));
    let child = Command::new(browser)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"])
        .args(["--disable-dev-shm-usage", "--no-first-run", "--enable-logging=stderr", "--v=0"])
        .arg(format!("--user-data-dir={}", dir.join("profile").display()))
        .args(args)
        .arg(format!("file://{}", page.display()))
        .stdin(Stdio::null())
        .stdout(File::create(&out).unwrap())
        .stderr(File::create(&err).unwrap())
        .spawn()
        .unwrap();
    let mut child = BrowserProcess(child);
    let began = Instant::now();
    while child.0.try_wait().unwrap().is_none() {
        assert!(began.elapsed() < TIMEOUT, "the browser did not end within the limit");
        std::thread::sleep(Duration::from_millis(10));
    }
    (fs::read_to_string(out).unwrap(), String::from_utf8_lossy(&fs::read(err).unwrap()).into())
}

/// Returns the findings of the probe in a frame of this width: a window cannot be as narrow as a phone.
fn probe(browser: &Path, page: &str, width: u32) -> Value {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("page.html");
    let probe = format!("<script>{}</script></body>", include_str!("probe.js"));
    let page = page.replace("<style>", &format!("{LISTENER}<style>")).replace("</body>", &probe);
    fs::write(&file, page).unwrap();
    let frame = format!(
        "<!doctype html><title>frame</title><script>onmessage = (event) => {{ \
         const pre = document.createElement('pre'); pre.id = 'probe'; pre.textContent = event.data; \
         document.body.append(pre); }};</script>\
         <body style='margin:0'><iframe src='page.html' style='border:0;width:{width}px;height:900px'></iframe>"
    );
    let outer = dir.path().join("frame.html");
    fs::write(&outer, frame).unwrap();
    let args = ["--dump-dom", "--virtual-time-budget=4000", "--window-size=1400,1000"];
    let (dom, log) = run(browser, dir.path(), &outer, &args);
    assert!(!log.contains("CONSOLE"), "the page wrote to the console: {log}");
    let (_, found) =
        dom.split_once("<pre id=\"probe\">").expect("the output of the probe is missing");
    let (found, _) = found.split_once("</pre>").unwrap();
    serde_json::from_str(&found.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&"))
        .unwrap()
}

#[test]
fn the_page_works_in_a_browser() {
    let Some(browser) = browser() else { return };
    let page = fixtures::report().html(&fixtures::scenarios());
    for width in [1280, 390] {
        let found = probe(&browser, &page, width);
        let expected = json!({
            "width": width,
            "errors": [],
            "too_wide": [],
            // Every text has a contrast of at least 4.5.
            "low_contrast": [],
            "dead_links": 0,
            "duplicate_ids": 0,
            "requests": 0,
            // Equal runs are shown as one.
            "runs": 9,
            "timelines": 9,
            "misplaced": 0,
            "graphs": 3,
            "lock_tables": 2,
            "searched": ["deadlock-ring"],
            "on_mariadb": 5,
            "disagreeing": 2,
            // A filter without matches shows a message.
            "nothing": true,
            "opened_by_link": true,
            "theme_changes": true,
        });
        assert_eq!(found, expected, "at {width}");
    }
}

/// Takes pictures in light and dark, for desktop and phone, with all runs open and closed.
#[test]
fn screenshots_are_written_on_request() {
    let Some(directory) = std::env::var_os("HIERLOCK_SCREENSHOTS").map(PathBuf::from) else {
        return;
    };
    let Some(browser) = browser() else { return };
    let dir = tempfile::tempdir().unwrap();
    let page = fixtures::report().html(&fixtures::scenarios());
    fs::write(directory.join("page.html"), &page).unwrap();
    for theme in ["light", "dark"] {
        for (size, width, height) in [("desk", 1280, 1500), ("phone", 390, 1800)] {
            let click = "document.getElementById('f-open').click();";
            for (suffix, click, height) in [("", "", height), ("-open", click, height * 3)] {
                let script = format!(
                    "<script>document.documentElement.dataset.theme='{theme}';{click}</script></body>"
                );
                let file = dir.path().join("page.html");
                fs::write(&file, page.replace("</body>", &script)).unwrap();
                let picture = directory.join(format!("{size}-{theme}{suffix}.png"));
                let args = [
                    format!("--window-size={width},{height}"),
                    format!("--screenshot={}", picture.display()),
                ];
                run(&browser, dir.path(), &file, &args.each_ref().map(String::as_str));
                assert!(picture.is_file());
            }
        }
    }
}
