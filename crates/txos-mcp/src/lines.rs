//! The client's messages, one a line, and the answers to lines that are none.
//!
//! rmcp's own transport drops a line that is too long or no JSON without an answer, and a client that has sent
//! a request so waits for ever. Here every such line gets a JSON-RPC error, and the next line is read.
//!
//! - No more of a line than the limit is held. Of a longer one only its `id` is looked for, up to its end: many
//!   clients write it last.
//! - `receive` may be dropped whenever it waits (rmcp has it in a `select!`). What it has read, and an answer
//!   that is half written, are therefore in the struct.

use std::io;
use std::pin::Pin;
use std::sync::Arc;

use rmcp::RoleServer;
use rmcp::model::ErrorCode;
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use serde::Serialize;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::sync::Mutex;

/// The longest line that is understood.
const LINE_MAX: usize = 16 * 1024 * 1024;
/// What stays allocated for the next line.
const LINE_USUAL: usize = 64 * 1024;
/// The longest id that is found in a line that is too long.
const ID_MAX: usize = 1024;

/// Messages over a pair of streams.
pub struct Lines<R, W> {
    read: BufReader<R>,
    limit: usize,
    /// What there is of the line that is being read.
    line: Vec<u8>,
    /// Of a line over the limit, of which nothing is kept: its id, if it has one.
    id: Option<IdFinder>,
    write: Arc<Mutex<W>>,
    /// An answer of this transport's own that is being written.
    answering: Option<Pin<Box<dyn Future<Output = io::Result<()>> + Send>>>,
}

/// How a line has ended.
enum Ended {
    /// It is in the buffer.
    Whole,
    /// It was longer than the limit. Its id, or null.
    TooLong(Value),
}

/// What a line says.
#[derive(Debug)]
enum Meaning {
    /// This, to rmcp.
    Message(Box<RxJsonRpcMessage<RoleServer>>),
    /// Nothing that is answered.
    Nothing,
    /// Nothing that is understood. The answer.
    Wrong(Value),
}

impl<R: AsyncRead + Unpin, W> Lines<R, W> {
    /// Over these streams.
    pub fn new(read: R, write: W) -> Self {
        Lines {
            read: BufReader::new(read),
            limit: LINE_MAX,
            line: Vec::new(),
            id: None,
            write: Arc::new(Mutex::new(write)),
            answering: None,
        }
    }

    /// Reads on to the end of the line; `None` if the client has gone.
    async fn ended(&mut self) -> Option<Ended> {
        loop {
            let chunk = self.read.fill_buf().await.ok().filter(|chunk| !chunk.is_empty())?;
            let end = chunk.iter().position(|byte| *byte == b'\n');
            let (text, _) = chunk.split_at(end.unwrap_or(chunk.len()));
            match &mut self.id {
                Some(id) => id.push(text),
                None if self.line.len() + text.len() > self.limit => {
                    let id = self.id.insert(IdFinder::default());
                    id.push(&self.line);
                    id.push(text);
                    self.line = Vec::new();
                }
                None => self.line.extend_from_slice(text),
            }
            let read = text.len() + usize::from(end.is_some());
            self.read.consume(read);
            if end.is_some() {
                return Some(match self.id.take() {
                    Some(id) => Ended::TooLong(id.found),
                    None => Ended::Whole,
                });
            }
        }
    }
}

impl<R, W> Transport<RoleServer> for Lines<R, W>
where
    R: AsyncRead + Send + Unpin,
    W: AsyncWrite + Send + Unpin + 'static,
{
    type Error = io::Error;

    fn send(
        &mut self,
        message: TxJsonRpcMessage<RoleServer>,
    ) -> impl Future<Output = io::Result<()>> + Send + 'static {
        write_line(Arc::clone(&self.write), message)
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        loop {
            if let Some(answering) = &mut self.answering {
                let written = answering.await;
                self.answering = None;
                written.ok()?;
            }
            let meaning = match self.ended().await? {
                Ended::TooLong(id) => Meaning::Wrong(too_long(&id, self.limit)),
                Ended::Whole => {
                    let meaning = meaning(&self.line);
                    self.line.clear();
                    self.line.shrink_to(LINE_USUAL);
                    meaning
                }
            };
            match meaning {
                Meaning::Message(message) => return Some(*message),
                Meaning::Nothing => {}
                Meaning::Wrong(answer) => {
                    let writing = write_line(Arc::clone(&self.write), answer);
                    self.answering = Some(Box::pin(writing));
                }
            }
        }
    }

    async fn close(&mut self) -> io::Result<()> {
        self.write.lock().await.shutdown().await
    }
}

/// Writes a message, and nothing of another one within it.
async fn write_line<W: AsyncWrite + Unpin>(
    to: Arc<Mutex<W>>,
    message: impl Serialize,
) -> io::Result<()> {
    let mut line = serde_json::to_vec(&message)?;
    line.push(b'\n');
    let mut to = to.lock().await;
    to.write_all(&line).await?;
    to.flush().await
}

fn meaning(line: &[u8]) -> Meaning {
    // RFC 8259 lets a reader ignore a byte order mark.
    let line = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line);
    if line.trim_ascii().is_empty() {
        return Meaning::Nothing;
    }
    if let Ok(message) = serde_json::from_slice(line) {
        return Meaning::Message(Box::new(message));
    }
    let value: Value = match serde_json::from_slice(line) {
        Ok(value) => value,
        Err(error) => {
            let text = format!("Parse error: the line is no JSON ({error}); it is passed over");
            return Meaning::Wrong(answer(&Value::Null, ErrorCode::PARSE_ERROR, &text));
        }
    };
    let id = value.get("id");
    if value.get("method").is_some_and(Value::is_string) && id.is_none() {
        // A notification that rmcp does not know. These have no answers.
        return Meaning::Nothing;
    }
    // Without a method it may be a response, and its id is then none of the client's own.
    let id = id.filter(|id| is_id(id) && value.get("method").is_some());
    let text =
        "Invalid request: the line is JSON, but no message of JSON-RPC 2.0; it is passed over";
    Meaning::Wrong(answer(id.unwrap_or(&Value::Null), ErrorCode::INVALID_REQUEST, text))
}

fn too_long(id: &Value, limit: usize) -> Value {
    let text = format!(
        "Invalid request: the line is longer than {limit} bytes; nothing was done, and the next line is read. \
         Have a command read or make such an amount of data from a file"
    );
    answer(id, ErrorCode::INVALID_REQUEST, &text)
}

/// JSON-RPC wants an `id` of null where it is not known; rmcp's type would leave it out.
fn answer(id: &Value, code: ErrorCode, text: &str) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "error": {"code": code.0, "message": text}})
}

fn is_id(value: &Value) -> bool {
    value.is_string() || value.is_number()
}

/// Looks for the `id` of an object that is given piece by piece, and holds no more than that.
#[derive(Debug, Default)]
struct IdFinder {
    /// What was found last: a string, a number or null.
    found: Value,
    /// In how many objects and arrays this is.
    depth: usize,
    /// Whether this is in a string, and whether behind a backslash there.
    string: Option<bool>,
    /// The key or value that is being read of the outermost object, up to a byte more than an id may have. Of an
    /// object or array in it, its bracket.
    token: Vec<u8>,
    /// Whether its key is `id`.
    is_id: bool,
}

impl IdFinder {
    fn push(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.step(*byte));
    }

    fn step(&mut self, byte: u8) {
        if let Some(escaped) = self.string {
            self.keep(byte);
            self.string = match byte {
                _ if escaped => Some(false),
                b'\\' => Some(true),
                b'"' => None,
                _ => Some(false),
            };
            return;
        }
        match byte {
            b'"' => {
                self.string = Some(false);
                self.keep(byte);
            }
            b'{' | b'[' => {
                self.keep(byte);
                self.depth += 1;
                if self.depth == 1 {
                    self.token.clear();
                }
            }
            b'}' | b']' => {
                if self.depth == 1 {
                    self.value_ended();
                }
                self.depth = self.depth.saturating_sub(1);
            }
            b':' if self.depth == 1 => {
                self.is_id = self.token == b"\"id\"";
                self.token.clear();
            }
            b',' if self.depth == 1 => self.value_ended(),
            byte if byte.is_ascii_whitespace() => {}
            byte => self.keep(byte),
        }
    }

    fn keep(&mut self, byte: u8) {
        if self.depth == 1 && self.token.len() <= ID_MAX {
            self.token.push(byte);
        }
    }

    fn value_ended(&mut self) {
        let token = std::mem::take(&mut self.token);
        if std::mem::take(&mut self.is_id) && token.len() <= ID_MAX {
            let value: Option<Value> = serde_json::from_slice(&token).ok();
            self.found = value.filter(is_id).unwrap_or_default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(line: &str) -> Value {
        // However it is cut.
        let ids: Vec<Value> = [1, 3, line.len().max(1)]
            .map(|size| {
                let mut finder = IdFinder::default();
                line.as_bytes().chunks(size).for_each(|chunk| finder.push(chunk));
                finder.found
            })
            .into();
        assert!(ids.iter().all(|id| *id == ids[0]), "{line}: {ids:?}");
        ids[0].clone()
    }

    #[test]
    fn the_id_of_a_line_is_found_wherever_it_stands() {
        let long = "x".repeat(2 * ID_MAX);
        for (line, id) in [
            (r#"{"jsonrpc":"2.0","id":7,"method":"m"}"#, json!(7)),
            (r#"{"method":"m","params":{"id":1,"a":[{"id":2}]},"jsonrpc":"2.0","id":3}"#, json!(3)),
            (r#" { "id" : "a\"},{" , "method":"m" } "#, json!("a\"},{")),
            (r#"{"params":{"text":"\\\"id\":9,{"},"id":-1}"#, json!(-1)),
            (r#"{"params":"\"id\"","id":null}"#, json!(null)),
            (r#"{"id":{"id":4}}"#, json!(null)),
            (r#"{"id":[5]}"#, json!(null)),
            (r#"{"id":true}"#, json!(null)),
            (r#"[{"id":6}]"#, json!(null)),
            ("", json!(null)),
            ("}}}]]]{\"id\":8}", json!(8)),
            ("nonsense: id, \"id\": 5", json!(null)),
        ] {
            assert_eq!(found(line), id, "{line}");
        }
        assert_eq!(found(&format!("{{\"id\":\"{long}\"}}")), json!(null));
        assert_eq!(found(&format!("{{\"id\":{}}}", "1".repeat(2 * ID_MAX))), json!(null));
        assert_eq!(found(&format!("{{\"{long}\":\"{long}\",\"id\":5}}")), json!(5));
    }

    #[test]
    fn no_more_than_an_id_is_held() {
        let mut finder = IdFinder::default();
        finder.push(b"{\"params\":\"");
        (0..1000).for_each(|_| finder.push(&[b'x'; 1000]));
        assert!(finder.token.capacity() <= 4 * ID_MAX);
        finder.push(b"\",\"id\":5}");
        assert_eq!(finder.found, json!(5));
    }

    #[tokio::test]
    async fn what_is_no_message_is_answered_and_the_next_line_is_read() {
        let (client, server) = tokio::io::duplex(64);
        let (read, write) = tokio::io::split(server);
        let mut lines = Lines { limit: 100, ..Lines::new(read, write) };
        let (answers, mut to) = tokio::io::split(client);
        let sent = tokio::spawn(async move {
            let long = "x".repeat(150);
            for line in [
                "nonsense",
                "",
                " \r",
                "{\"jsonrpc\": \"2.0\", \"method\": \"unknown\", \"params\": 5}",
                "{\"id\": 1, \"method\": 5}",
                "{\"id\": 2}",
                &format!("{{\"method\":\"m\",\"params\":\"{long}\",\"id\":3}}"),
                &long,
                "\u{feff}{\"jsonrpc\":\"2.0\",\"id\":4,\"method\":\"ping\"}\r",
            ] {
                to.write_all(format!("{line}\n").as_bytes()).await.unwrap();
            }
            to
        });
        let receiving = tokio::spawn(async move {
            // rmcp knows what to do with notifications that it does not know.
            while let Some(message) = lines.receive().await {
                if matches!(message, RxJsonRpcMessage::<RoleServer>::Request(_)) {
                    return (true, lines);
                }
            }
            (false, lines)
        });
        let mut answers = BufReader::new(answers).lines();
        for (id, code) in [
            (json!(null), -32700),
            (json!(1), -32600),
            (json!(null), -32600),
            (json!(3), -32600),
            (json!(null), -32600),
        ] {
            let answer = answers.next_line().await.unwrap().unwrap();
            let answer: Value = serde_json::from_str(&answer).unwrap();
            assert_eq!((&answer["id"], &answer["error"]["code"]), (&id, &json!(code)), "{answer}");
            assert!(answer.as_object().unwrap().contains_key("id"), "{answer}");
        }
        let (received, mut lines) = receiving.await.unwrap();
        assert!(received);
        drop(sent.await.unwrap());
        drop(answers);
        assert!(lines.receive().await.is_none());
    }
}
