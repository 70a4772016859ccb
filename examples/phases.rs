//! x
use std::time::Instant;
fn main() {
    let path = std::env::args().nth(1).unwrap();
    let threads: usize = std::env::args().nth(2).unwrap().parse().unwrap();
    let t = Instant::now();
    let mut o = tracetool::input::ReadOptions::default();
    o.threads = threads;
    o.keep = tracetool::trace::Keep { frames: false, ..tracetool::trace::Keep::ALL };
    let trace = tracetool::input::read_path(std::path::Path::new(&path), &o).unwrap();
    eprintln!("read {:?}", t.elapsed());
    let t = Instant::now();
    let top = tracetool::report::top::Top::default();
    let r = top.run(&trace).unwrap();
    eprintln!("top {:?} {}", t.elapsed(), r.blocks.len());
    let t = Instant::now();
    drop(trace);
    eprintln!("drop {:?}", t.elapsed());
}
