//! The remote protocol of gdb, for `metatm run --gdb ADDRESS`: registers, memory, breakpoints, single steps; each hart is a thread.
//!
//! Source: "Debugging with GDB", appendix "gdb Remote Serial Protocol".

use std::io::{BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

use metatm::machine::debug::Debug;
use metatm::machine::{Ended, Machine};

/// Bytes of a packet that is taken.
const PACKET: usize = 0x4000;

/// What the client is told of the machine.
const TARGET: &str = "<?xml version=\"1.0\"?><!DOCTYPE target SYSTEM \"gdb-target.dtd\">\
    <target version=\"1.0\"><architecture>riscv:rv64</architecture></target>";

/// A client.
pub struct Client {
    out: TcpStream,
    packets: Receiver<String>,
    interrupt: Arc<AtomicBool>,
    /// The hart that registers and memory are those of.
    hart: usize,
}

/// What the client wants next.
enum Wish {
    /// An answer, and more questions.
    Answer(String),
    /// The machine runs.
    Go,
    /// The machine runs, without the client.
    Leave,
    /// The machine ends.
    Kill,
}

impl Client {
    /// Waits for a client.
    ///
    /// # Errors
    /// If the address can't be listened at.
    pub fn wait(address: &str) -> Result<Client, String> {
        let failed = |e: std::io::Error| format!("--gdb {address}: {e}");
        let listener = TcpListener::bind(address).map_err(failed)?;
        eprintln!("metatm: waits for gdb at {}", listener.local_addr().map_err(failed)?);
        let (out, _) = listener.accept().map_err(failed)?;
        out.set_nodelay(true).map_err(failed)?;
        let input = out.try_clone().map_err(failed)?;
        let interrupt = Arc::new(AtomicBool::new(false));
        let (to, packets) = channel();
        let asked = Arc::clone(&interrupt);
        std::thread::spawn(move || receive(input, &to, &asked));
        Ok(Client { out, packets, interrupt, hart: 0 })
    }

    /// Runs a machine as the client says.
    pub fn run(
        mut self,
        machine: &mut Machine,
        cycles: u64,
        mut console: impl FnMut(&[u8]) -> bool,
    ) -> Ended {
        machine.debug = Some(Debug::new(Arc::clone(&self.interrupt)));
        loop {
            match self.next(machine) {
                Wish::Answer(answer) => self.send(&answer),
                Wish::Kill => return Ended::Debugger,
                Wish::Leave => {
                    if let Some(debug) = &mut machine.debug {
                        debug.breakpoints.clear();
                        debug.step = None;
                    }
                    // A client that is gone has stopped the machine once more.
                    loop {
                        let ended = machine.run(cycles, &mut console);
                        if ended != Ended::Debugger {
                            return ended;
                        }
                    }
                }
                Wish::Go => match machine.run(cycles, &mut console) {
                    Ended::Debugger => {
                        self.hart = machine.debug.as_ref().map_or(0, |d| d.stopped);
                        let answer = self.stopped();
                        self.send(&answer);
                    }
                    ended => {
                        self.send("W00");
                        return ended;
                    }
                },
            }
        }
    }

    fn stopped(&self) -> String {
        format!("T05thread:{:x};", self.hart + 1)
    }

    /// A client that is gone is seen at the next packet.
    fn send(&mut self, answer: &str) {
        let sum = answer.bytes().fold(0u8, u8::wrapping_add);
        let _ = write!(self.out, "${answer}#{sum:02x}");
    }

    fn next(&mut self, machine: &mut Machine) -> Wish {
        let Ok(packet) = self.packets.recv() else { return Wish::Leave };
        let harts = machine.harts.len();
        let answer = |text: &str| Wish::Answer(text.to_owned());
        let (letter, rest) = packet.split_at(packet.chars().next().map_or(0, char::len_utf8));
        match letter {
            "?" => Wish::Answer(self.stopped()),
            "g" => Wish::Answer((0..33).map(|n| hex(&register(machine, self.hart, n))).collect()),
            "G" => {
                let Some(bytes) = unhex(rest) else { return answer("E01") };
                for (n, value) in bytes.chunks_exact(8).take(33).enumerate() {
                    set_register(machine, self.hart, n as u64, value);
                }
                answer("OK")
            }
            "p" => match number(rest) {
                Some(n @ 0..65) => Wish::Answer(hex(&register(machine, self.hart, n))),
                _ => answer("E01"),
            },
            "P" => match rest.split_once('=').map(|(n, v)| (number(n), unhex(v))) {
                Some((Some(n @ 0..65), Some(value))) if value.len() == 8 => {
                    set_register(machine, self.hart, n, &value);
                    answer("OK")
                }
                _ => answer("E01"),
            },
            "m" => match pair(rest) {
                Some((at, len)) if len as usize <= PACKET / 2 => {
                    let bytes = machine.peek(self.hart, at, len as usize);
                    if bytes.is_empty() { answer("E14") } else { Wish::Answer(hex(&bytes)) }
                }
                _ => answer("E01"),
            },
            "M" => {
                let wanted = rest.split_once(':').map(|(to, data)| (pair(to), unhex(data)));
                match wanted {
                    Some((Some((at, len)), Some(data))) if data.len() as u64 == len => {
                        answer(if machine.poke(self.hart, at, &data) { "OK" } else { "E14" })
                    }
                    _ => answer("E01"),
                }
            }
            "Z" | "z" => breakpoint(machine, letter == "Z", rest),
            "c" => Wish::Go,
            "s" => self.step(machine, self.hart),
            "v" => match rest {
                "Cont?" => answer("vCont;c;C;s;S"),
                _ => self.vcont(machine, rest),
            },
            "H" => match number(rest.get(1..).unwrap_or_default()) {
                // 0 and -1 (which is no number here) leave the choice.
                Some(0) | None => answer("OK"),
                Some(n) if n as usize <= harts => {
                    self.hart = n as usize - 1;
                    answer("OK")
                }
                _ => answer("E01"),
            },
            "T" => match number(rest) {
                Some(n) if (1..=harts as u64).contains(&n) => answer("OK"),
                _ => answer("E01"),
            },
            "q" => Wish::Answer(self.query(machine, rest)),
            "D" => {
                self.send("OK");
                Wish::Leave
            }
            "k" => Wish::Kill,
            _ => answer(""),
        }
    }

    fn step(&self, machine: &mut Machine, hart: usize) -> Wish {
        if let Some(debug) = &mut machine.debug {
            debug.step = Some(hart);
        }
        Wish::Go
    }

    fn vcont(&self, machine: &mut Machine, rest: &str) -> Wish {
        let Some(actions) = rest.strip_prefix("Cont;") else {
            return Wish::Answer(String::new());
        };
        if !actions.starts_with(['c', 'C', 's', 'S']) {
            return Wish::Answer("E01".into());
        }
        for action in actions.split(';') {
            let (what, thread) = action.split_once(':').unwrap_or((action, ""));
            if what.starts_with(['s', 'S']) {
                let hart = match number(thread) {
                    Some(n) if n > 0 && n as usize <= machine.harts.len() => n as usize - 1,
                    _ => self.hart,
                };
                return self.step(machine, hart);
            }
        }
        Wish::Go
    }

    fn query(&self, machine: &Machine, what: &str) -> String {
        let harts = machine.harts.len();
        if what.starts_with("Supported") {
            return format!("PacketSize={PACKET:x};qXfer:features:read+;vContSupported+");
        }
        if let Some(range) = what.strip_prefix("Xfer:features:read:target.xml:") {
            let Some((at, len)) = pair(range) else { return "E01".into() };
            let at = (at as usize).min(TARGET.len());
            let end = at.saturating_add(len as usize).min(TARGET.len());
            let more = if end < TARGET.len() { 'm' } else { 'l' };
            return format!("{more}{}", &TARGET[at..end]);
        }
        if let Some(thread) = what.strip_prefix("ThreadExtraInfo,") {
            let hart = number(thread).and_then(|n| machine.harts.get((n as usize).wrapping_sub(1)));
            return hart.map_or("E01".into(), |hart| {
                let tx = machine.bus.tm.running(hart.id);
                let tx = tx.map_or(String::new(), |tx| format!(", transaction {}", tx.number));
                hex(format!("hart {}, {:?} mode, {:?}{tx}", hart.id, hart.mode, hart.state)
                    .as_bytes())
            });
        }
        match what {
            "fThreadInfo" => {
                let all: Vec<String> = (1..=harts).map(|n| format!("{n:x}")).collect();
                format!("m{}", all.join(","))
            }
            "sThreadInfo" => "l".into(),
            "C" => format!("QC{:x}", self.hart + 1),
            "Attached" => "1".into(),
            _ => String::new(),
        }
    }
}

fn breakpoint(machine: &mut Machine, set: bool, rest: &str) -> Wish {
    let answer = |text: &str| Wish::Answer(text.to_owned());
    // Breakpoints in software and in hardware are one; there are no watchpoints.
    let Some(place) = rest.strip_prefix("0,").or_else(|| rest.strip_prefix("1,")) else {
        return answer("");
    };
    let (Some((at, _)), Some(debug)) = (pair(place), &mut machine.debug) else {
        return answer("E01");
    };
    if set {
        debug.breakpoints.insert(at);
    } else {
        debug.breakpoints.remove(&at);
    }
    answer("OK")
}

/// Registers as gdb numbers them: integer ones, the program counter, floating-point ones.
fn register(machine: &Machine, hart: usize, n: u64) -> [u8; 8] {
    let hart = &machine.harts[hart];
    match n {
        0..32 => hart.x[n as usize],
        32 => hart.pc,
        _ => hart.f[n as usize - 33],
    }
    .to_le_bytes()
}

fn set_register(machine: &mut Machine, hart: usize, n: u64, value: &[u8]) {
    let value = u64::from_le_bytes(value.try_into().unwrap_or_default());
    let hart = &mut machine.harts[hart];
    match n {
        0 => {}
        1..32 => hart.x[n as usize] = value,
        32 => hart.pc = value & !1,
        _ => hart.f[n as usize - 33] = value,
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes();
    let byte = |two: &[u8]| u8::from_str_radix(std::str::from_utf8(two).ok()?, 16).ok();
    digits.len().is_multiple_of(2).then(|| digits.chunks(2).map(byte).collect())?
}

fn number(text: &str) -> Option<u64> {
    u64::from_str_radix(text, 16).ok()
}

fn pair(text: &str) -> Option<(u64, u64)> {
    let (a, b) = text.split_once(',')?;
    Some((number(a)?, number(b)?))
}

/// Takes packets apart until the client is gone. An interrupt stops the machine at once.
fn receive(stream: TcpStream, to: &Sender<String>, interrupt: &AtomicBool) {
    let Ok(mut acks) = stream.try_clone() else { return };
    let mut bytes = BufReader::new(stream).bytes().map_while(Result::ok);
    while let Some(byte) = bytes.next() {
        match byte {
            3 => interrupt.store(true, Ordering::Relaxed),
            b'$' => {
                let data: Vec<u8> =
                    bytes.by_ref().take_while(|b| *b != b'#').take(PACKET).collect();
                let sum = [bytes.next().unwrap_or(0), bytes.next().unwrap_or(0)];
                let right = data.iter().copied().fold(0u8, u8::wrapping_add);
                let whole = std::str::from_utf8(&sum).ok().and_then(number) == Some(right.into());
                let _ = acks.write_all(if whole { b"+" } else { b"-" });
                if whole && to.send(String::from_utf8_lossy(&data).into_owned()).is_err() {
                    return;
                }
            }
            _ => {}
        }
    }
    // The machine goes on without the client; if it runs, it stops first.
    interrupt.store(true, Ordering::Relaxed);
}
