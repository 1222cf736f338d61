//! Devices: each has its registers at an address of its own, and raises lines of the interrupt controller.
//!
//! | module | what lives there |
//! |---|---|
//! | [`plic`] | the interrupt controller |
//! | [`uart`] | the serial console |
//! | [`virtio`] | registers and queues that disk and network share |
//! | [`disk`] | a disk (virtio-blk) with a latency |
//! | [`net`] | two network interfaces (virtio-net) and a wire between them |

pub mod disk;
pub mod net;
pub mod plic;
pub mod uart;
pub mod virtio;

/// Where the devices are. Each has a page.
pub mod map {
    /// Core-local interruptor: software interrupts and time.
    pub const CLINT: u64 = 0x0200_0000;
    /// Its size.
    pub const CLINT_SIZE: u64 = 0x1_0000;
    /// Platform-level interrupt controller.
    pub const PLIC: u64 = 0x0c00_0000;
    /// Its size.
    pub const PLIC_SIZE: u64 = 0x40_0000;
    /// Serial console.
    pub const UART: u64 = 0x1000_0000;
    /// First virtio device; the others follow, each in a page.
    pub const VIRTIO: u64 = 0x1000_1000;
    /// Bytes of each.
    pub const VIRTIO_SIZE: u64 = 0x1000;
    /// Virtio devices: the disk and two network interfaces.
    pub const VIRTIOS: u64 = 3;
    /// Interrupt line of the first virtio device; those of the others follow.
    pub const VIRTIO_LINE: u32 = 1;
    /// Interrupt line of the console.
    pub const UART_LINE: u32 = 10;
}
