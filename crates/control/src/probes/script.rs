//! Sends bytes and waits for bytes, one step after the other.

use model::check::ScriptStep;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::http::holds;

/// Bytes that may come before those that a step waits for.
const READ_BYTES_MAX: usize = 16 * 1024;

/// Follows a script to its end.
///
/// # Errors
/// Which step failed, and why.
pub(crate) async fn follow<S>(stream: &mut S, steps: &[ScriptStep]) -> Result<(), String>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut received = Vec::new();
    for (number, step) in (1..).zip(steps) {
        let done = match step {
            ScriptStep::Send(bytes) => send(stream, bytes).await,
            ScriptStep::Expect(wanted) => expect(stream, &mut received, wanted).await,
        };
        done.map_err(|why| format!("script step {number}: {why}"))?;
    }
    Ok(())
}

async fn send<S: AsyncWrite + Unpin>(stream: &mut S, bytes: &[u8]) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("cannot send: {error}");
    stream.write_all(bytes).await.map_err(failed)?;
    stream.flush().await.map_err(failed)
}

/// Reads until `wanted` has come, and leaves in `received` what followed it.
async fn expect<S: AsyncRead + Unpin>(stream: &mut S, received: &mut Vec<u8>, wanted: &[u8]) -> Result<(), String> {
    let mut buffer = [0; 2 * 1024];
    loop {
        if holds(received, wanted) {
            let at = received.windows(wanted.len().max(1)).position(|window| window == wanted).unwrap_or(0);
            received.drain(..at + wanted.len());
            return Ok(());
        }
        let shown = wanted.escape_ascii();
        if received.len() >= READ_BYTES_MAX {
            return Err(format!("no \"{shown}\" within {READ_BYTES_MAX} bytes"));
        }
        let read = stream.read(&mut buffer).await.map_err(|error| format!("cannot read: {error}"))?;
        if read == 0 {
            return Err(format!("closed without \"{shown}\""));
        }
        received.extend_from_slice(&buffer[..read]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps(text: &[&str]) -> Vec<ScriptStep> {
        let step = |text: &&str| match text.split_once(' ') {
            Some((">", bytes)) => ScriptStep::Send(bytes.into()),
            Some((_, bytes)) => ScriptStep::Expect(bytes.into()),
            None => panic!("{text}"),
        };
        text.iter().map(step).collect()
    }

    async fn follow_with(script: &[&str], answer: &[u8]) -> Result<(), String> {
        let (mut near, mut far) = tokio::io::duplex(1 << 20);
        far.write_all(answer).await.unwrap();
        far.shutdown().await.unwrap();
        let done = follow(&mut near, &steps(script)).await;
        drop(near);
        let mut sent = Vec::new();
        far.read_to_end(&mut sent).await.unwrap();
        let wanted: String = script.iter().filter_map(|step| step.strip_prefix("> ")).collect();
        assert!(done.is_err() || sent == wanted.as_bytes());
        done
    }

    #[tokio::test]
    async fn steps_follow_each_other_and_what_came_early_is_not_lost() {
        assert_eq!(follow_with(&["> PING", "< PONG"], b"+PONG\r\n").await, Ok(()));
        assert_eq!(follow_with(&["< 220", "> QUIT", "< 221"], b"220 hi\r\n221 bye\r\n").await, Ok(()));
        let twice = follow_with(&["< a", "< a"], b"a").await;
        assert_eq!(twice, Err("script step 2: closed without \"a\"".into()), "one answer does not serve two steps");
    }

    #[tokio::test]
    async fn rubbish_and_endless_bytes_fail_the_step() {
        assert_eq!(
            follow_with(&["> x", "< ok\n"], b"\xff\xfe").await,
            Err("script step 2: closed without \"ok\\n\"".into())
        );
        let endless = follow_with(&["< ok"], &b"x".repeat(100_000)).await;
        assert_eq!(endless, Err("script step 1: no \"ok\" within 16384 bytes".into()));
        assert_eq!(follow_with(&["< ok"], b"").await, Err("script step 1: closed without \"ok\"".into()));
    }
}
