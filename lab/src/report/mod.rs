//! Reports: what a study found, drawn so that anybody can read it without the lab.
//!
//! [`page`] is the data; it knows no study. [`html`] draws a page as one file without any link to the outside: [`charts`]
//! and [`tables`] are its parts, [`points`] and [`colours`] what they need, and [`text`] keeps every text from becoming
//! markup. The scripts beside them draw the charts: `scales.js` (axes), `frame.js` (what all charts have around them),
//! `marks.js` (bars, lines and points), `kinds.js` (what each kind of chart tells where one points at), `report.js` (starts).

mod charts;
mod colours;
mod files;
mod html;
mod index;
pub(crate) mod page;
mod points;
mod sample;
mod tables;
mod text;

pub(crate) use files::{ReportArgs, run, write, write_index};
