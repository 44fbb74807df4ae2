//! Reports on disk: `results.json`, `report.html` beside it, `index.html` above the studies.

use super::page::Page;
use super::{html, index, sample};
use crate::failure::Failure;
use crate::measure::child::write_file;
use clap::Args;
use std::fs;
use std::path::{Path, PathBuf};

const RESULTS: &str = "results.json";

/// What to draw again.
#[derive(Args, Debug)]
pub(crate) struct ReportArgs {
    /// A results.json, the folder of a study, or the folder above all studies
    path: PathBuf,
    /// Write a made-up page with everything that a page can hold there, for the test of the pages
    #[arg(long, hide = true)]
    sample: bool,
}

/// `lab report`: draws reports again from their figures.
pub(crate) fn run(args: &ReportArgs) -> Result<(), Failure> {
    if args.sample {
        for page in sample::pages() {
            write(&page, &args.path.join(&page.study))?;
        }
    }
    for folder in redraw(&args.path)? {
        println!("{}", folder.display());
    }
    Ok(())
}

/// Draws what lies at a path; returns the files written.
fn redraw(path: &Path) -> Result<Vec<PathBuf>, Failure> {
    if path.is_file() || path.join(RESULTS).is_file() {
        let file = if path.is_file() { path.to_owned() } else { path.join(RESULTS) };
        let folder = file.parent().map(Path::to_owned).unwrap_or_default();
        return Ok(vec![draw(&read(&file)?, &folder)?]);
    }
    let mut written = Vec::new();
    for folder in studies(path)? {
        written.push(draw(&read(&folder.join(RESULTS))?, &folder)?);
    }
    if written.is_empty() {
        return Err(Failure::new(format!("{}: no {RESULTS} in it or in a folder of it", path.display())));
    }
    written.push(write_index(path)?);
    Ok(written)
}

/// Writes a study's figures and its report.
pub(crate) fn write(page: &Page, folder: &Path) -> Result<PathBuf, Failure> {
    fs::create_dir_all(folder).map_err(|error| Failure::io(folder, &error))?;
    let json = serde_json::to_string(page).map_err(|error| Failure::new(error.to_string()))?;
    write_file(&folder.join(RESULTS), &(json + "\n"))?;
    draw(page, folder)
}

/// Writes an index of all reports below a folder, of this run and of earlier ones.
pub(crate) fn write_index(folder: &Path) -> Result<PathBuf, Failure> {
    let pages = studies(folder)?.into_iter().map(|study| read(&study.join(RESULTS)));
    let file = folder.join("index.html");
    write_file(&file, &index::index(&pages.collect::<Result<Vec<_>, _>>()?))?;
    Ok(file)
}

fn draw(page: &Page, folder: &Path) -> Result<PathBuf, Failure> {
    let file = folder.join("report.html");
    write_file(&file, &html::render(page))?;
    Ok(file)
}

fn read(file: &Path) -> Result<Page, Failure> {
    let text = fs::read_to_string(file).map_err(|error| Failure::io(file, &error))?;
    serde_json::from_str(&text).map_err(|error| {
        let what = "not the results of a study, or of another version of the lab: run the study again";
        Failure::new(format!("{}: {what} ({error})", file.display()))
    })
}

/// Folders with results, by name.
fn studies(folder: &Path) -> Result<Vec<PathBuf>, Failure> {
    let entries = fs::read_dir(folder).map_err(|error| Failure::io(folder, &error))?;
    let mut folders: Vec<PathBuf> = entries.filter_map(|entry| entry.ok().map(|entry| entry.path())).collect();
    folders.retain(|path| path.join(RESULTS).is_file());
    folders.sort();
    Ok(folders)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("lab-test-{}-{name}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        folder
    }

    #[test]
    fn a_report_is_drawn_again_from_its_figures() {
        let folder = folder("redraw");
        for page in sample::pages() {
            write(&page, &folder.join(&page.study)).unwrap();
        }
        let report = folder.join("sample/report.html");
        let first = fs::read_to_string(&report).unwrap();
        fs::remove_file(&report).unwrap();
        assert_eq!(redraw(&folder).unwrap().len(), sample::pages().len() + 1);
        let again = fs::read_to_string(&report).unwrap();
        let differs = again.lines().zip(first.lines()).filter(|(one, other)| one != other).count();
        assert_eq!((differs, again.len()), (0, first.len()), "lines that differ");
        assert_eq!(redraw(&folder.join("sample")).unwrap(), [report]);
        assert!(fs::read_to_string(folder.join("index.html")).unwrap().contains("sample/report.html"));
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn what_is_no_result_is_refused_with_its_name() {
        let folder = folder("no-result");
        assert!(redraw(&folder).unwrap_err().to_string().contains("no results.json"));
        fs::write(folder.join(RESULTS), "{}").unwrap();
        let said = redraw(&folder).unwrap_err().to_string();
        assert!(said.contains("results.json: not the results of a study"), "{said}");
        fs::remove_dir_all(folder).unwrap();
    }
}
