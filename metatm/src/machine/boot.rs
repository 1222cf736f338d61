//! The device tree, which tells the kernel what machine it runs on.

use vm_fdt::FdtWriter;

use super::ram;
use crate::devices::map;

/// What the tree says.
#[derive(Clone, Copy, Debug)]
pub struct Description<'a> {
    /// Harts.
    pub harts: usize,
    /// Bytes of memory.
    pub memory: u64,
    /// Ticks of the clock a second.
    pub ticks_per_second: u32,
    /// The kernel's command line.
    pub command_line: &'a str,
    /// Where the initial file system begins and ends.
    pub initrd: Option<(u64, u64)>,
    /// What the kernel's random numbers come from: there is no other source of them.
    pub seed: u64,
}

const PLIC: u32 = 1;
/// Handle of the first hart's interrupt controller; the others follow.
const FIRST_HART: u32 = 16;

/// Makes the tree.
///
/// # Errors
/// If the parts don't fit together, which is a mistake of this module's.
pub fn device_tree(d: &Description<'_>) -> Result<Vec<u8>, vm_fdt::Error> {
    let mut fdt = FdtWriter::new()?;
    let root = fdt.begin_node("")?;
    fdt.property_u32("#address-cells", 2)?;
    fdt.property_u32("#size-cells", 2)?;
    fdt.property_string("compatible", "riscv-virtio")?;
    fdt.property_string("model", "MetaTM")?;

    let chosen = fdt.begin_node("chosen")?;
    fdt.property_string("bootargs", d.command_line)?;
    fdt.property_string("stdout-path", &format!("/soc/serial@{:x}", map::UART))?;
    if let Some((start, end)) = d.initrd {
        fdt.property_u64("linux,initrd-start", start)?;
        fdt.property_u64("linux,initrd-end", end)?;
    }
    fdt.property("rng-seed", &entropy(d.seed))?;
    fdt.end_node(chosen)?;

    let memory = fdt.begin_node(&format!("memory@{:x}", ram::BASE))?;
    fdt.property_string("device_type", "memory")?;
    fdt.property_array_u64("reg", &[ram::BASE, d.memory])?;
    fdt.end_node(memory)?;

    let cpus = fdt.begin_node("cpus")?;
    fdt.property_u32("#address-cells", 1)?;
    fdt.property_u32("#size-cells", 0)?;
    fdt.property_u32("timebase-frequency", d.ticks_per_second)?;
    for hart in 0..d.harts as u32 {
        let cpu = fdt.begin_node(&format!("cpu@{hart}"))?;
        fdt.property_string("device_type", "cpu")?;
        fdt.property_u32("reg", hart)?;
        fdt.property_string("status", "okay")?;
        fdt.property_string("compatible", "riscv")?;
        fdt.property_string("riscv,isa", "rv64imafdc")?;
        fdt.property_string("mmu-type", "riscv,sv39")?;
        let controller = fdt.begin_node("interrupt-controller")?;
        fdt.property_u32("#interrupt-cells", 1)?;
        fdt.property_null("interrupt-controller")?;
        fdt.property_string("compatible", "riscv,cpu-intc")?;
        fdt.property_phandle(FIRST_HART + hart)?;
        fdt.end_node(controller)?;
        fdt.end_node(cpu)?;
    }
    fdt.end_node(cpus)?;

    let soc = fdt.begin_node("soc")?;
    fdt.property_u32("#address-cells", 2)?;
    fdt.property_u32("#size-cells", 2)?;
    fdt.property_string("compatible", "simple-bus")?;
    fdt.property_null("ranges")?;
    interrupt_controller(&mut fdt, d.harts as u32)?;
    let device =
        |fdt: &mut FdtWriter, name: &str, at: u64, size: u64, line: u32, compatible: &str| {
            let node = fdt.begin_node(&format!("{name}@{at:x}"))?;
            fdt.property_string("compatible", compatible)?;
            fdt.property_array_u64("reg", &[at, size])?;
            fdt.property_u32("interrupt-parent", PLIC)?;
            fdt.property_u32("interrupts", line)?;
            if name == "serial" {
                fdt.property_u32("clock-frequency", 3_686_400)?;
            }
            fdt.end_node(node)
        };
    device(&mut fdt, "serial", map::UART, 0x100, map::UART_LINE, "ns16550a")?;
    for (number, line) in (0..map::VIRTIOS).zip(map::VIRTIO_LINE..) {
        let at = map::VIRTIO + number * map::VIRTIO_SIZE;
        device(&mut fdt, "virtio_mmio", at, map::VIRTIO_SIZE, line, "virtio,mmio")?;
    }
    fdt.end_node(soc)?;
    fdt.end_node(root)?;
    fdt.finish()
}

/// As many bytes as a kernel takes for enough; the same ones for the same seed.
fn entropy(seed: u64) -> [u8; 64] {
    let mut bytes = [0; 64];
    let mut state = seed;
    for word in bytes.chunks_mut(8) {
        // Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014.
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        word.copy_from_slice(&(mixed ^ mixed >> 31).to_le_bytes());
    }
    bytes
}

fn interrupt_controller(fdt: &mut FdtWriter, harts: u32) -> Result<(), vm_fdt::Error> {
    let plic = fdt.begin_node(&format!("interrupt-controller@{:x}", map::PLIC))?;
    fdt.property_string("compatible", "sifive,plic-1.0.0")?;
    fdt.property_u32("#interrupt-cells", 1)?;
    fdt.property_u32("#address-cells", 0)?;
    fdt.property_null("interrupt-controller")?;
    fdt.property_array_u64("reg", &[map::PLIC, map::PLIC_SIZE])?;
    // One context for each hart: external interrupts of its supervisor.
    let contexts: Vec<u32> = (0..harts).flat_map(|hart| [FIRST_HART + hart, 9]).collect();
    fdt.property_array_u32("interrupts-extended", &contexts)?;
    fdt.property_u32("riscv,ndev", 31)?;
    fdt.property_phandle(PLIC)?;
    fdt.end_node(plic)
}
