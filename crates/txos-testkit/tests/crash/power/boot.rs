//! What the product is for works on a stock, older kernel.

use txos_testkit::{require, skip};

use crate::place::{Place, parts};

/// One boot, everything once; the checks are in `power-guest`.
fn works_with_data_on(kind: &'static str) {
    let parts = parts();
    require!(parts.is_ok(), "{}", parts.as_ref().err().unwrap_or(&""));
    require!(skip::has(&format!("mkfs.{kind}")), "there is no mkfs.{kind}");
    let mut place = Place::new(parts.unwrap(), kind, &format!("boot-{kind}"));
    let said = place.boot("guest.do=checks").shut_down();
    let checks: Vec<&String> = said.iter().filter(|line| line.starts_with("CHECK ")).collect();
    let wrong = said.iter().filter(|line| line.contains("BAD ") || line.contains("panicked"));
    let wrong: Vec<&String> = wrong.collect();
    assert!(wrong.is_empty(), "{wrong:#?}\n{}", said.join("\n"));
    assert!(checks.len() == 15 && said.iter().any(|l| l == "DONE"), "{}", said.join("\n"));
    assert!(place.disks.iter().all(|disk| disk.flushes() > 0), "the guest never flushes");
}

#[test]
fn everything_works_on_the_kernel_of_debian_12() {
    works_with_data_on("xfs");
}

#[test]
fn everything_works_there_with_data_on_btrfs() {
    require!(skip::long("power"), "a second boot: ./test --long power");
    works_with_data_on("btrfs");
}
