extern crate strsim;

use strsim::{generic_jaro, jaro, jaro_winkler};

fn near(expected: f64, found: f64) {
    assert!((expected - found).abs() < 0.001, "{} is not {}", found, expected);
}

#[test]
fn pairs_that_are_swapped_are_two_transpositions() {
    near(0.889, jaro("123456", "341256"));
    near(0.889, jaro_winkler("123456", "341256"));
    near(0.889, generic_jaro(&[1, 2, 3, 4, 5, 6], &[3, 4, 1, 2, 5, 6]));
}

#[test]
fn one_swapped_pair_is_one() {
    near(0.944, jaro("martha", "marhta"));
}
