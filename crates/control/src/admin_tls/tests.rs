//! Both sides over real sockets.

use std::io::{self, Read, Write};

use model::snapshot::{Admin, ClientTrust, Pem, UpstreamTls};
use rcgen::string::Ia5String;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, IsCa, KeyPair, SanType};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::*;

/// Long enough for anything on this machine, so that a test fails rather than hangs.
const PATIENCE: Duration = Duration::from_secs(20);

type Authority = CertifiedIssuer<'static, KeyPair>;

fn authority() -> Authority {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, "the tests' own");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

fn pem(path: &str, text: String) -> Pem {
    Pem { path: path.into(), bytes: text.into_bytes().into() }
}

/// For `localhost`, with this common name.
fn issued(authority: &Authority, name: &str) -> Certificate {
    let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    params.subject_alt_names.push(SanType::URI("spiffe://example.com/hand".try_into().unwrap()));
    params.subject_alt_names.push(SanType::Rfc822Name("hand@example.com".try_into().unwrap()));
    params.distinguished_name.push(DnType::CommonName, name);
    let key = KeyPair::generate().unwrap();
    let certificate = params.signed_by(&key, authority).unwrap();
    Certificate { chain: pem("admin.pem", certificate.pem()), key: pem("admin.key", key.serialize_pem()) }
}

fn asking(certificate: Certificate, client: ClientAuth) -> TlsTermination {
    let certificates = vec![certificate];
    TlsTermination { certificates, version_min: TlsVersion::Tls12, client, handshake_timeout: PATIENCE }
}

fn of_authority(authority: &Authority) -> ClientTrust {
    ClientTrust { authorities: pem("ca.pem", authority.pem()), identity_header: None }
}

fn snapshot(tls: TlsTermination) -> Snapshot {
    let bind = "127.0.0.1:0".parse().unwrap();
    let (tls, tokens, identities) = (Some(tls), Vec::new(), Vec::new());
    let admin = Admin { bind, mode: 0o600, tls, tokens, identities, state: None, changes_allowed: true };
    Snapshot { admin: Some(admin), ..Snapshot::default() }
}

/// What a client reads that says `hello`, and how the connection looked from our side.
fn converse(tls: &Arc<AdminTls>, shows: UpstreamTls) -> (io::Result<String>, Secured) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let client = tokio::task::spawn_blocking(move || {
            let stream = std::net::TcpStream::connect(address)?;
            stream.set_read_timeout(Some(PATIENCE))?;
            let mut stream = dial(&shows, &format!("localhost:{}", address.port()), stream)?;
            stream.write_all(b"hello")?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer)?;
            Ok::<_, io::Error>(answer)
        });
        let (stream, _) = listener.accept().await.unwrap();
        let mut stream = tls.accept(stream);
        let secured = stream.secured().clone();
        assert!(!secured.is_open() && secured.shown().is_none(), "nothing is proven yet");
        let mut asked = [0; 5];
        if stream.read_exact(&mut asked).await.is_ok() {
            stream.write_all(b"welcome").await.unwrap();
            stream.shutdown().await.unwrap();
        }
        (client.await.unwrap(), secured)
    })
}

fn shows(authority: &Authority, certificate: Option<Certificate>) -> UpstreamTls {
    let authorities = Some(pem("ca.pem", authority.pem()));
    UpstreamTls { server_name: None, verify: true, authorities, certificate }
}

#[test]
fn a_client_is_known_by_what_stands_in_its_certificate() {
    let (ours, theirs) = (authority(), authority());
    let settings = asking(issued(&ours, "the program"), ClientAuth::Required(of_authority(&theirs)));
    let tls = of(&snapshot(settings.clone()), None).unwrap().unwrap();
    let (answer, secured) = converse(&tls, shows(&ours, Some(issued(&theirs, "hand"))));
    assert_eq!(answer.unwrap(), "welcome");
    let shown = secured.shown().expect("it has shown one");
    assert_eq!((secured.is_open(), shown.subject.as_str()), (true, "CN=hand"));
    assert!(shown.bears(&CertificateName::Subject("hand".into())));
    for name in ["spiffe://example.com/hand", "hand@example.com", "localhost"] {
        assert!(shown.bears(&CertificateName::Alternative(name.into())), "{name}");
        assert!(!shown.bears(&CertificateName::Subject(name.into())), "{name}");
    }
    for name in ["Hand", "han", "hand ", "", "spiffe://example.com/hand/more"] {
        assert!(!shown.bears(&CertificateName::Subject(name.into())), "{name}");
        assert!(!shown.bears(&CertificateName::Alternative(name.into())), "{name}");
    }
    // What was proven by one rule is nothing by another.
    assert!(still_holds(Some(&secured), Some(&settings)) && still_holds(None, None));
    let renewed = asking(issued(&ours, "the program"), settings.client.clone());
    assert!(still_holds(Some(&secured), Some(&renewed)), "only ours is another");
    let others = asking(issued(&ours, "the program"), ClientAuth::Required(of_authority(&ours)));
    let stricter = TlsTermination { version_min: TlsVersion::Tls13, ..settings.clone() };
    for now in [None, Some(&others), Some(&stricter)] {
        assert!(!still_holds(Some(&secured), now), "{now:?}");
    }
    assert!(!still_holds(None, Some(&settings)), "it is not encrypted");
}

/// What a certificate shows that has these common names, from the least specific to the most, and these alternative names.
fn shown(names: &[&str], alternatives: Vec<SanType>) -> ShownCertificate {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.subject_alt_names = alternatives;
    params.distinguished_name = DistinguishedName::new();
    for (place, name) in names.iter().enumerate() {
        // The library takes each kind once, and kinds of others for any number.
        params.distinguished_name.push(DnType::CustomDnType(vec![2, 5, 4, 100 + place as u64]), *name);
    }
    let certificate = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
    let mut der = certificate.der().to_vec();
    for place in 0..names.len() as u8 {
        // The object identifiers become that of the common name (2.5.4.3). The signature is nobody's business here.
        while let Some(at) = der.windows(5).position(|five| five == [6, 3, 0x55, 4, 100 + place]) {
            der[at + 4] = 3;
        }
    }
    ShownCertificate::of(&der.into())
}

#[test]
fn of_several_names_in_a_subject_the_most_specific_counts() {
    let ann = shown(&["Users", "ann"], Vec::new());
    assert_eq!((ann.subject.as_str(), ann.common_name.as_deref()), ("CN=ann,CN=Users", Some("ann")));
    assert!(ann.bears(&CertificateName::Subject("ann".into())));
    assert!(!ann.bears(&CertificateName::Subject("Users".into())), "which everybody there has");
    assert_eq!(shown(&[], Vec::new()).common_name, None);
}

#[test]
fn an_alternative_name_of_one_kind_is_none_of_another() {
    type Kind = fn(Ia5String) -> SanType;
    let names = ["hal.example.com", "hal@example.com", "spiffe://example.com/hal", "https://hal@example.com/"];
    let of = |name: &str| CertificateName::Alternative(name.into());
    let kinds: [(Kind, &[&str]); 3] =
        [(SanType::DnsName, &names[..1]), (SanType::Rfc822Name, &names[1..2]), (SanType::URI, &names[2..])];
    for (kind, own) in kinds {
        let all = shown(&[], names.iter().map(|name| kind((*name).try_into().unwrap())).collect());
        for name in names {
            assert_eq!(all.bears(&of(name)), own.contains(&name), "{name}");
        }
    }
}

#[test]
fn who_shows_nothing_or_what_nobody_vouches_for_learns_that_he_is_refused() {
    let (ours, theirs) = (authority(), authority());
    let needed = asking(issued(&ours, "the program"), ClientAuth::Required(of_authority(&theirs)));
    let needed = of(&snapshot(needed), None).unwrap().unwrap();
    let optional = asking(issued(&ours, "the program"), ClientAuth::Optional(of_authority(&theirs)));
    let optional = of(&snapshot(optional), None).unwrap().unwrap();
    let foreign = || Some(issued(&ours, "hand"));
    for (tls, certificate) in [(&needed, None), (&needed, foreign()), (&optional, foreign())] {
        let (answer, secured) = converse(tls, shows(&ours, certificate));
        let error = answer.unwrap_err();
        assert!(is_refusal(&error), "{error:?}");
        assert!(!secured.is_open() && secured.shown().is_none());
    }
    let (answer, secured) = converse(&optional, shows(&ours, None));
    assert_eq!((answer.unwrap().as_str(), secured.is_open(), secured.shown()), ("welcome", true, None));
    // The other way round, the program is not who was asked for.
    let (answer, _) = converse(&optional, shows(&theirs, None));
    let error = answer.unwrap_err();
    assert!(!is_refusal(&error) && error.to_string().contains("certificate"), "{error}");
}

#[test]
fn files_that_are_of_no_use_are_told_together_and_what_is_unchanged_stays() {
    let ours = authority();
    let good = asking(issued(&ours, "the program"), ClientAuth::Off);
    let first = of(&snapshot(good.clone()), None).unwrap().unwrap();
    let again = of(&snapshot(good.clone()), Some(&first)).unwrap().unwrap();
    assert!(Arc::ptr_eq(&first, &again));
    let other = asking(issued(&ours, "the program"), ClientAuth::Off);
    assert!(!Arc::ptr_eq(&first, &of(&snapshot(other.clone()), Some(&first)).unwrap().unwrap()));
    let mut mixed = good.clone();
    mixed.certificates[0].key = other.certificates[0].key.clone();
    let told = |settings: TlsTermination| -> Vec<String> {
        of(&snapshot(settings), None).unwrap_err().iter().map(ToString::to_string).collect()
    };
    assert_eq!(
        told(mixed),
        ["admin/tls/certificates/0: the key admin.key does not belong to the certificate admin.pem"]
    );
    let mut empty = good;
    empty.certificates[0].key = pem("admin.key", String::new());
    let nobody = ClientTrust { authorities: pem("ca.pem", String::new()), identity_header: None };
    empty.client = ClientAuth::Required(nobody);
    let told = told(empty);
    assert_eq!(told.len(), 2, "{told:?}");
    assert!(told[0].starts_with("admin/tls/certificates/0: admin.key: "), "{told:?}");
    assert_eq!(told[1], "admin/tls/client/authorities: there is no CA to verify certificates with");
    assert!(of(&Snapshot::default(), None).unwrap().is_none());
    assert!(!format!("{first:?}").contains("PRIVATE"), "keys never reach a log");
}
