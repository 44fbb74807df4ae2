//! Connections to members: they carry what this instance counts.

use std::collections::HashMap;
use std::rc::Rc;
use std::time::{Duration, Instant};

use model::peers::Member;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use wire::peers::{Frame, Gap, Hello};

use super::connection::{Connection, GREETING_WITHIN, SILENCE_MAX, Secrets};
use super::incoming::TEACHING_MAX;
use super::sessions::Cursor;
use super::shared::Shared;
use super::status::{Key, PeerState};
use crate::providers::backoff::jittered;

/// How often a name is resolved.
const RESOLVE_EVERY: Duration = Duration::from_secs(5);
/// Addresses of one name.
const ADDRESSES_MAX: usize = 64;
/// The longest pause between attempts.
const PAUSE_MAX: Duration = Duration::from_secs(5);
const PAUSE_MIN: Duration = Duration::from_millis(100);
/// A connection that lasts so long, or over which something was acknowledged, is a good one: the next attempt comes soon.
const GOOD_AFTER: Duration = Duration::from_secs(5);
/// A peer that connects ends a pause no more often.
const WAKE_EVERY: Duration = Duration::from_secs(1);
/// Pause before an address is tried again that is this instance, or one that is connected by another address.
const KNOWN_PAUSE: Duration = Duration::from_secs(5);
/// A state is sent no more often.
const TEACH_EVERY: Duration = Duration::from_secs(1);
/// A receiver waits so long for its turn, while others are taught.
const TEACH_WITHIN: Duration = Duration::from_secs(30);
/// The same if it has just begun: another may teach it at once.
const TEACH_NEW_WITHIN: Duration = Duration::from_secs(3);
/// How often it is looked whether the turn has come.
const TEACH_AGAIN: Duration = Duration::from_millis(50);
const PING_EVERY: Duration = Duration::from_secs(1);

/// A task that ends with this.
pub(super) struct Task(pub(super) JoinHandle<()>);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Keeps a connection to each address of a member.
pub(super) async fn follow(member: Member, secrets: Rc<Secrets>, shared: Shared) {
    let name = member.to_string();
    let mut links: HashMap<String, Task> = HashMap::new();
    loop {
        let found = timeout(GREETING_WITHIN, tokio::net::lookup_host((member.host.as_str(), member.port))).await;
        match found {
            Ok(Ok(addresses)) => {
                let addresses: Vec<String> = addresses.take(ADDRESSES_MAX).map(|address| address.to_string()).collect();
                shared.board().members.retain(|(known, at), _| *known != name || addresses.contains(at));
                links.retain(|address, _| addresses.contains(address));
                for address in addresses {
                    let link = || {
                        let key = (name.clone(), address.clone());
                        Task(tokio::task::spawn_local(keep(key, Rc::clone(&secrets), shared.clone())))
                    };
                    links.entry(address.clone()).or_insert_with(link);
                }
            }
            Ok(Err(error)) => unresolved(&shared, &name, &error.to_string()),
            Err(_) => unresolved(&shared, &name, "no answer in time"),
        }
        sleep(jittered(RESOLVE_EVERY, &name)).await;
    }
}

fn unresolved(shared: &Shared, name: &str, why: &str) {
    // Addresses that are known stay.
    if !shared.board().members.keys().any(|(known, at)| known == name && !at.is_empty()) {
        shared.failed(&(name.to_owned(), String::new()), &format!("the name cannot be resolved: {why}"));
    }
}

/// Connects again and again.
pub(super) async fn keep(key: Key, secrets: Rc<Secrets>, shared: Shared) {
    let is_retired = shared.engine().is_retired();
    let pause_max = if is_retired { PAUSE_MIN } else { PAUSE_MAX };
    let (mut pause, mut woken) = (PAUSE_MIN, None);
    loop {
        let dialed = Connection::dial((&key.1, &key.0), &secrets, &shared.hello()).await;
        let wait = match dialed {
            Err(why) => {
                shared.failed(&key, &why);
                pause = (pause * 2).min(pause_max);
                pause
            }
            Ok((_, hello)) if hello.instance == shared.me() => {
                shared.board().note(&key, PeerState::Own, Some(hello.instance));
                KNOWN_PAUSE
            }
            Ok((connection, hello)) => match Place::take(&shared, &key, hello.instance) {
                None => KNOWN_PAUSE,
                Some(_place) => {
                    shared.connected(&key, &hello);
                    let (begun, mut is_good) = (Instant::now(), false);
                    let served = serve(connection, &hello, (&shared, &mut is_good)).await;
                    shared.failed(&key, &served.err().unwrap_or_default());
                    is_good |= begun.elapsed() >= GOOD_AFTER;
                    pause = if is_good { PAUSE_MIN } else { (pause * 2).min(pause_max) };
                    pause
                }
            },
        };
        tokio::select! {
            () = sleep(jittered(wait, &key.1)) => {}
            // One that has come may be the one that could not be reached.
            () = wake(&shared, &mut woken) => {}
        }
    }
}

/// Waits until a peer connects.
async fn wake(shared: &Shared, woken: &mut Option<Instant>) {
    shared.arrived().await;
    if let Some(woken) = woken {
        sleep(WAKE_EVERY.saturating_sub(woken.elapsed())).await;
    }
    *woken = Some(Instant::now());
}

/// The one connection to an instance.
struct Place<'a>(&'a Shared, u128);

impl<'a> Place<'a> {
    fn take(shared: &'a Shared, key: &Key, instance: u128) -> Option<Self> {
        let outgoing = &mut shared.board().outgoing;
        if outgoing.contains_key(&instance) {
            return None;
        }
        outgoing.insert(instance, key.clone());
        Some(Self(shared, instance))
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.board().outgoing.remove(&self.1);
        self.0.engine().part(self.1);
        self.0.sessions().part(self.1, Instant::now());
    }
}

/// Sends until something fails. Notes when the first number is acknowledged.
async fn serve(
    mut connection: Connection,
    hello: &Hello,
    (shared, is_good): (&Shared, &mut bool),
) -> Result<(), String> {
    // This one is meant: another connection to the same instance says nothing after its greeting.
    connection.send(&Frame::Ping).await?;
    let (mut position, mut sessions) = (None, Cursor::default());
    let (mut heard, mut pinged) = (Instant::now(), Instant::now());
    let (mut asked, mut taught): (Option<Instant>, Option<Instant>) = (None, None);
    loop {
        while let Some(answer) =
            answer(&mut connection, hello.instance, shared, (&mut position, &mut sessions, &mut *is_good))?
        {
            match answer {
                Answer::Gap => connection.send(&gap(shared)).await?,
                Answer::Teach => asked = Some(Instant::now()),
            }
        }
        let within = if hello.is_settled { TEACH_WITHIN } else { TEACH_NEW_WITHIN };
        let is_soon = taught.is_some_and(|taught| taught.elapsed() < TEACH_EVERY);
        if let Some(at) = asked.filter(|_| !is_soon) {
            // The state of all tables is in memory until it is sent: one at a time.
            let teaching = shared.teaching();
            if teaching.is_some() || at.elapsed() >= within {
                asked = None;
                let state = teaching.as_ref().and_then(|_| shared.engine().state(Instant::now()));
                match state {
                    // That this instance knows too little may not change soon: the receiver goes on without.
                    None => connection.send(&Frame::NotYet).await?,
                    Some(frames) => {
                        taught = Some(Instant::now());
                        teach(&mut connection, frames).await?;
                    }
                }
            }
        }
        while let Some(after) = position {
            let next = shared.engine().next_after(hello.instance, after, Instant::now());
            match next {
                Ok(None) => break,
                Ok(Some((frame, last))) => {
                    connection.send_bytes(&frame).await?;
                    position = Some(last);
                }
                Err(Gap) => {
                    position = None;
                    connection.send(&gap(shared)).await?;
                }
            }
        }
        send_sessions(&mut connection, shared, &mut sessions).await?;
        if pinged.elapsed() >= PING_EVERY {
            pinged = Instant::now();
            connection.send(&Frame::Ping).await?;
        }
        tokio::select! {
            read = connection.fill() => {
                read?;
                heard = Instant::now();
            }
            () = shared.drained() => {}
            () = sleep(if asked.is_some() { TEACH_AGAIN } else { PING_EVERY }) => {}
        }
        if heard.elapsed() > SILENCE_MAX {
            return Err(format!("nothing came for {SILENCE_MAX:?}"));
        }
    }
}

/// Sends sessions that were learned, or all of them to a peer that wants them.
async fn send_sessions(connection: &mut Connection, shared: &Shared, cursor: &mut Cursor) -> Result<(), String> {
    loop {
        if *cursor == Cursor::All {
            // They are in memory until they are sent, for one peer at a time.
            let Some(_teaching) = shared.teaching() else { return Ok(()) };
            let (frames, next) = shared.sessions().state(Instant::now());
            teach(connection, frames).await?;
            *cursor = next;
        }
        let next = shared.sessions().next_after(*cursor, Instant::now());
        let Some((frame, next)) = next else { return Ok(()) };
        *cursor = next;
        if !frame.is_empty() {
            connection.send_bytes(&frame).await?;
        }
    }
}

async fn teach(connection: &mut Connection, frames: Vec<Vec<u8>>) -> Result<(), String> {
    let sending = async {
        for frame in frames {
            connection.send_bytes(&frame).await?;
        }
        Ok(())
    };
    timeout(TEACHING_MAX, sending).await.map_err(|_| format!("it was not taught within {TEACHING_MAX:?}"))?
}

fn gap(shared: &Shared) -> Frame<'static> {
    Frame::Gap(shared.engine().known())
}

enum Answer {
    Gap,
    Teach,
}

/// Takes frames that have come, up to one that wants an answer.
fn answer(
    connection: &mut Connection,
    receiver: u128,
    shared: &Shared,
    (position, sessions, is_good): (&mut Option<u64>, &mut Cursor, &mut bool),
) -> Result<Option<Answer>, String> {
    while let Some(frame) = connection.frame()? {
        match frame {
            Frame::FollowSessions(after) => {
                *sessions = shared.sessions().begin(receiver, after);
                continue;
            }
            Frame::AckSessions(number) => {
                shared.sessions().acknowledged(receiver, number);
                continue;
            }
            _ => {}
        }
        let mut engine = shared.engine();
        match frame {
            Frame::Follow { after, known } => match engine.begin(receiver, (after, &known), Instant::now()) {
                Ok(()) => *position = Some(after),
                Err(Gap) => {
                    *position = None;
                    return Ok(Some(Answer::Gap));
                }
            },
            Frame::Teach => {
                *position = None;
                return Ok(Some(Answer::Teach));
            }
            Frame::Ack(number) => {
                engine.acknowledged(receiver, number, Instant::now());
                *is_good = true;
            }
            Frame::Ping | Frame::Unknown(_) => {}
            _ => return Err("it sent a frame that a receiver does not send".to_owned()),
        }
    }
    Ok(None)
}
