//! Single operations of the request path, for counting their instructions.
//!
//! `operations` lists its cells. `operations CELL` runs the operation of that cell [`OPERATIONS`] times inside
//! `counted_operations`, after as many that are not counted, and prints how many that were. Inputs, seeds and order are fixed, so that two runs of one build differ by
//! next to nothing. The black-box test `instructions` runs each cell with callgrind, which collects inside that function only, and
//! compares the figures with `tests/instructions.txt`:
//!
//! ```text
//! cargo build --release -p equipoise --example operations
//! valgrind --tool=callgrind --collect-atstart=no --toggle-collect='*counted_operations*' target/release/examples/operations CELL
//! ```
//!
//! It belongs to the package of the program, so that both are built with the same profile and share their compiled dependencies.

mod made;
mod parse;
mod pick;
mod record;
mod route;

use std::hint::black_box;
use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Operations that are counted in one run. As many records fit half a ring of an access log: behind that, each would wake the thread
/// that empties the ring.
const OPERATIONS: u32 = 500;

/// An operation and its inputs.
struct Cell {
    name: String,
    run: Box<dyn Fn()>,
}

impl Cell {
    /// `run` prepares the inputs and gives the operation to [`count`].
    fn new(name: impl Into<String>, run: impl Fn() + 'static) -> Self {
        Self { name: name.into(), run: Box::new(run) }
    }
}

/// Runs an operation as often as one count has it, first without being counted, so that memory has its working size.
fn count(operation: &mut dyn FnMut()) {
    repeat(operation);
    // The compiler must not know which operation it is: it would count one that is a part of this function.
    counted_operations(black_box(operation));
}

fn repeat(operation: &mut dyn FnMut()) {
    (0..OPERATIONS).for_each(|_| operation());
}

/// The only function in which callgrind collects, chosen by its name.
#[inline(never)]
fn counted_operations(operation: &mut dyn FnMut()) {
    repeat(operation);
}

fn main() -> ExitCode {
    let cells: Vec<Cell> =
        [parse::cells(), route::cells(), pick::cells(), record::cells()].into_iter().flatten().collect();
    let Some(wanted) = std::env::args().nth(1) else {
        cells.iter().for_each(|cell| println!("{}", cell.name));
        return ExitCode::SUCCESS;
    };
    let Some(cell) = cells.iter().find(|cell| cell.name == wanted) else {
        eprintln!("there is no cell `{wanted}`; without an argument, all are listed");
        return ExitCode::FAILURE;
    };
    (cell.run)();
    println!("{OPERATIONS}");
    ExitCode::SUCCESS
}
