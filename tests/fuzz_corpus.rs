//! What fuzzing once found stays mended: the bodies of the fuzz targets, run on the inputs in `fuzz/regressions`.

#![allow(clippy::unwrap_used, reason = "a broken fixture ends the test")]

#[path = "../fuzz/targets.rs"]
mod targets;

use std::path::Path;

#[test]
fn what_fuzzing_once_found_stays_mended() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/regressions");
    for (name, target) in targets::ALL {
        let Ok(inputs) = std::fs::read_dir(folder.join(name)) else { continue };
        for input in inputs {
            let path = input.unwrap().path();
            println!("{}", path.display());
            target(&std::fs::read(path).unwrap());
        }
    }
}

#[test]
fn every_target_holds_for_nothing_and_for_little() {
    for (_, target) in targets::ALL {
        for byte in 0..=255 {
            target(&[byte; 7]);
        }
        target(&[]);
    }
}
