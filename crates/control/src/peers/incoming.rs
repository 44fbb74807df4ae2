//! Connections of members: they bring what others count.

use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::sleep;
use wire::peers::Frame;

use super::connection::{Connection, SILENCE_MAX, Secrets};
use super::doors::{Doors, Waiting};
use super::engine::Taken;
use super::sessions::Following;
use super::shared::{Entered, Shared};
use super::state::Collected;

/// Pause before an address is bound again that is taken.
const BIND_AGAIN: Duration = Duration::from_millis(50);
/// Attempts until that is logged: the process before may be about to leave it.
const BIND_QUIETLY: u32 = 60;
/// How often a sender is asked again for what it did not have.
const ASK_EVERY: Duration = Duration::from_millis(200);
const PING_EVERY: Duration = Duration::from_secs(1);
/// Time for a teacher to send all that it knows.
pub(super) const TEACHING_MAX: Duration = Duration::from_secs(60);

/// Listens for peers.
pub(super) async fn listen(address: SocketAddr, secrets: Rc<Secrets>, shared: Shared) {
    let mut failures = 0;
    let listener = loop {
        match TcpListener::bind(address).await {
            Ok(listener) => break listener,
            Err(error) => {
                failures += 1;
                if failures == BIND_QUIETLY {
                    telemetry::log::error("cannot listen for peers", &[("address", &address), ("error", &error)]);
                }
                sleep(BIND_AGAIN).await;
            }
        }
    };
    telemetry::log::info("listening for peers", &[("address", &address)]);
    // They end with this.
    let (mut connections, doors) = (JoinSet::new(), Doors::default());
    loop {
        while connections.try_join_next().is_some() {}
        let accepted = listener.accept().await;
        match accepted {
            Ok((stream, from)) => {
                let is_member = shared.board().has_member_at(from.ip());
                if let Some(waiting) = doors.knock(from.ip(), is_member) {
                    connections.spawn_local(welcome((stream, from), (Rc::clone(&secrets), shared.clone()), waiting));
                } else {
                    shared.board().refused += 1;
                }
            }
            Err(_) => sleep(Duration::from_millis(100)).await,
        }
    }
}

async fn welcome((stream, from): (TcpStream, SocketAddr), (secrets, shared): (Rc<Secrets>, Shared), waiting: Waiting) {
    let (ip, from) = (from.ip(), from.to_string());
    match Connection::accept(stream, &secrets, &shared.hello()).await {
        Err(why) => {
            shared.board().refused += 1;
            shared.warn_of_stranger(&from, &why);
        }
        // It has found itself.
        Ok((_, _, hello)) if hello.instance == shared.me() => {}
        Ok((mut connection, shown, hello)) => {
            if connection.confirmed().await.is_err() {
                return;
            }
            let Some(_place) = waiting.enter() else {
                shared.board().refused += 1;
                return;
            };
            let Some(entered) = shared.enter(&hello, shown) else {
                shared.board().refused += 1;
                shared.warn_of_stranger(&from, "it greets as a peer that is connected with another certificate");
                return;
            };
            let instance = format!("{:032x}", hello.instance);
            let may_log = |line: &str| shared.board().may_log(&format!("{line} {ip}"), Instant::now());
            if may_log("connected") {
                telemetry::log::info("a peer has connected", &[("from", &from), ("instance", &instance)]);
            }
            let why = hear(connection, &entered, &shared).await.err().unwrap_or_default();
            drop(entered);
            if may_log("left") {
                telemetry::log::info("a peer has left", &[("from", &from), ("instance", &instance), ("reason", &why)]);
            }
        }
    }
}

/// What was asked of a sender.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Asked {
    Nothing,
    Follow,
    Teach(Instant),
}

struct Hearing<'a> {
    sender: u128,
    shared: &'a Shared,
    asked: Asked,
    epoch: u64,
    state: Collected,
    sessions: Following,
}

/// Takes in what comes until something fails.
async fn hear(mut connection: Connection, entered: &Entered, shared: &Shared) -> Result<(), String> {
    let mut hearing = Hearing {
        sender: entered.instance(),
        shared,
        asked: Asked::Nothing,
        epoch: 0,
        state: Collected::default(),
        sessions: Following::default(),
    };
    let (mut heard, mut pinged, mut asked_at) = (Instant::now(), Instant::now(), None);
    loop {
        let mut is_paused = false;
        while let Some(answer) = hearing.take(&mut connection)? {
            match answer {
                Answer::Frame(frame) => connection.send(&frame).await?,
                Answer::Paused => {
                    is_paused = true;
                    break;
                }
            }
        }
        if !entered.is_current() {
            return Err("it has connected again".to_owned());
        }
        let is_time = asked_at.is_none_or(|at: Instant| at.elapsed() >= ASK_EVERY);
        if is_time && let Some(frame) = hearing.ask()? {
            connection.send(&frame).await?;
            asked_at = Some(Instant::now());
        }
        let frame = shared.sessions().ask(hearing.sender, &mut hearing.sessions);
        if let Some(frame) = frame {
            connection.send(&frame).await?;
        }
        if pinged.elapsed() >= PING_EVERY {
            pinged = Instant::now();
            connection.send(&Frame::Ping).await?;
        }
        if is_paused {
            sleep(Duration::from_millis(20)).await;
            heard = Instant::now();
            continue;
        }
        tokio::select! {
            read = connection.fill() => {
                read?;
                heard = Instant::now();
            }
            () = sleep(ASK_EVERY) => {}
        }
        if heard.elapsed() > SILENCE_MAX {
            return Err(format!("nothing came for {SILENCE_MAX:?}"));
        }
    }
}

enum Answer {
    Frame(Frame<'static>),
    Paused,
}

impl Hearing<'_> {
    /// Asks the sender, if it has not been asked or something has changed.
    fn ask(&mut self) -> Result<Option<Frame<'static>>, String> {
        let mut engine = self.shared.engine();
        match self.asked {
            Asked::Teach(at) if at.elapsed() > TEACHING_MAX => return Err("it took too long to teach".to_owned()),
            Asked::Teach(_) => return Ok(None),
            Asked::Follow if self.epoch == engine.epoch() && !engine.wants_teaching_by(self.sender) => return Ok(None),
            Asked::Follow | Asked::Nothing => {}
        }
        let frame = engine.ask(self.sender, Instant::now());
        self.epoch = engine.epoch();
        match &frame {
            Some(Frame::Teach) => {
                (self.asked, self.state) = (Asked::Teach(Instant::now()), Collected::default());
            }
            Some(_) => self.asked = Asked::Follow,
            None => {}
        }
        Ok(frame)
    }

    /// Takes frames that have come, up to one that wants an answer.
    fn take(&mut self, connection: &mut Connection) -> Result<Option<Answer>, String> {
        loop {
            let before = connection.taken();
            let Some(frame) = connection.frame()? else { return Ok(None) };
            if let Frame::Sessions(sessions) = &frame {
                let taken = self.shared.sessions().take((self.sender, &mut self.sessions), sessions, Instant::now());
                let Some(number) = taken else { continue };
                return Ok(Some(Answer::Frame(Frame::AckSessions(number))));
            }
            let mut engine = self.shared.engine();
            let now = Instant::now();
            match frame {
                // What was on its way when something else was asked for is passed over: it comes again.
                Frame::Segment(_) if self.asked != Asked::Follow => {}
                Frame::Segment(segment) => match engine.take(self.sender, &segment, now) {
                    Taken::Has(number) => return Ok(Some(Answer::Frame(Frame::Ack(number)))),
                    Taken::Behind(_) => self.asked = Asked::Nothing,
                    Taken::Broken => return Err("it sent a broken segment".to_owned()),
                    Taken::Paused => {
                        drop(engine);
                        let length = connection.taken() - before;
                        connection.give_back(length);
                        return Ok(Some(Answer::Paused));
                    }
                },
                Frame::Gap(known) => {
                    engine.lacks(self.sender, &known, now);
                    self.asked = Asked::Nothing;
                }
                Frame::NotYet => {
                    engine.not_yet(self.sender, now);
                    self.asked = Asked::Nothing;
                }
                Frame::State(blocks) if matches!(self.asked, Asked::Teach(_)) => {
                    // It had to wait for its turn.
                    self.asked = Asked::Teach(now);
                    self.state.add((&mut engine, self.sender), blocks)?;
                }
                Frame::StateEnd { head, vector } if matches!(self.asked, Asked::Teach(_)) => {
                    if engine.is_paused() {
                        return Err("this process is about to be followed by another".to_owned());
                    }
                    engine.adopt(self.sender, (self.state.take(), head, &vector), now);
                    self.asked = Asked::Nothing;
                }
                Frame::Ping | Frame::Unknown(_) => {}
                _ => return Err("it sent a frame that a sender does not send".to_owned()),
            }
        }
    }
}
