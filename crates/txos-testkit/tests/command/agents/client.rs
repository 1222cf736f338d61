//! A small client of the protocol, over a server's standard streams.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use rustix::process::{Pid, Signal};
use serde_json::{Value, json};
use txos_testkit::{Lab, binary};

/// A server, and its client. Killed when it is dropped.
pub struct Agent {
    server: Child,
    to: Option<ChildStdin>,
    from: BufReader<ChildStdout>,
    last: u64,
}

/// The policy of most tests: the agent decides, and only the lab's tree is versioned.
pub const FREE: &str = "versioned = 'workspace'\ncommit = 'agent'\nrevert = 'agent'\n";

impl Agent {
    /// Starts a server in the lab's tree, with a policy, and shakes hands with it.
    pub fn new(lab: &Lab, policy: &str) -> Agent {
        let mut agent = Agent::start(lab, policy);
        let _ = agent.hello();
        agent
    }

    /// Starts it without a word.
    pub fn start(lab: &Lab, policy: &str) -> Agent {
        let _ = binary::server();
        let file = lab.dir().join("policy.toml");
        std::fs::write(&file, policy).unwrap();
        let mut server = Command::new(binary::txos())
            .args(["mcp", "--policy"])
            .arg(&file)
            .env("TXOS_STORE", lab.store())
            .env("TXOS_REALM", lab.realm())
            .current_dir(lab.tree())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let to = server.stdin.take();
        let from = BufReader::new(server.stdout.take().unwrap());
        Agent { server, to, from, last: 0 }
    }

    /// The handshake; what the server says of itself.
    pub fn hello(&mut self) -> Value {
        let hello = json!({"protocolVersion": "2025-06-18", "capabilities": {},
            "clientInfo": {"name": "test", "version": "1"}});
        let answer = self.request("initialize", &hello);
        self.notify("notifications/initialized", &json!({}));
        answer["result"].clone()
    }

    /// Sends a line.
    pub fn line(&mut self, line: &[u8]) {
        let to = self.to.as_mut().unwrap();
        to.write_all(line).and_then(|()| to.write_all(b"\n")).unwrap();
    }

    /// The next line that the server writes; `None` if it ends.
    pub fn next(&mut self) -> Option<Value> {
        let mut line = String::new();
        let n = self.from.read_line(&mut line).unwrap();
        (n > 0).then(|| serde_json::from_str(&line).unwrap_or_else(|e| panic!("{e}: {line}")))
    }

    pub fn notify(&mut self, method: &str, params: &Value) {
        let note = json!({"jsonrpc": "2.0", "method": method, "params": params});
        self.line(note.to_string().as_bytes());
    }

    /// Sends a request; gives its number.
    pub fn send(&mut self, method: &str, params: &Value) -> u64 {
        self.last += 1;
        let request =
            json!({"jsonrpc": "2.0", "id": self.last, "method": method, "params": params});
        self.line(request.to_string().as_bytes());
        self.last
    }

    /// The answer to a request.
    pub fn answer(&mut self, to: u64) -> Value {
        loop {
            let answer = self.next().expect("the server goes on");
            if answer["id"] == to {
                return answer;
            }
        }
    }

    pub fn request(&mut self, method: &str, params: &Value) -> Value {
        let number = self.send(method, params);
        self.answer(number)
    }

    /// Sends a call of a tool; gives its number.
    pub fn begin_call(&mut self, tool: &str, arguments: &Value) -> u64 {
        self.send("tools/call", &json!({"name": tool, "arguments": arguments}))
    }

    /// Calls a tool; gives what it answers, which is text if it fails.
    pub fn call(&mut self, tool: &str, arguments: Value) -> Result<Value, String> {
        let number = self.begin_call(tool, &arguments);
        outcome(&self.answer(number))
    }

    /// Calls a tool that succeeds.
    #[track_caller]
    pub fn does(&mut self, tool: &str, arguments: Value) -> Value {
        self.call(tool, arguments).unwrap_or_else(|error| panic!("{tool}: {error}"))
    }

    /// Runs a command of which the changes are kept.
    #[track_caller]
    pub fn runs(&mut self, command: &str) -> Value {
        let ran = self.does("run", json!({"command": command}));
        assert!(ran["kept"] == true && ran["exit_status"] == 0, "{command}: {ran}");
        ran
    }

    /// Calls a tool that fails, and says these words.
    #[track_caller]
    pub fn fails(&mut self, tool: &str, arguments: Value, words: &[&str]) {
        let error = self.call(tool, arguments).expect_err(tool);
        for word in words {
            assert!(error.contains(word), "{tool}: {error} (it does not say {word:?})");
        }
    }

    /// The most memory that the server has had.
    pub fn peak_kilobytes(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.server.id())).unwrap();
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        peak.unwrap().trim().trim_end_matches(" kB").parse().unwrap()
    }

    pub fn signal(&self, signal: Signal) {
        let _ = rustix::process::kill_process(Pid::from_child(&self.server), signal);
    }

    /// Hangs up, and waits for the server's end.
    pub fn hang_up(mut self) -> Option<i32> {
        drop(self.to.take());
        self.server.wait().unwrap().code()
    }

    /// Waits for its end.
    pub fn wait(mut self) -> Option<i32> {
        self.server.wait().unwrap().code()
    }
}

/// What an answer to a call says: the structure, or the text of a failure.
pub fn outcome(answer: &Value) -> Result<Value, String> {
    let result = &answer["result"];
    if answer["error"].is_object() {
        return Err(answer["error"]["message"].as_str().unwrap().to_owned());
    }
    match result["isError"] == true {
        true => Err(result["content"][0]["text"].as_str().unwrap().to_owned()),
        false => Ok(result["structuredContent"].clone()),
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}
