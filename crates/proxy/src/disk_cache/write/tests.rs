use super::*;

#[test]
fn only_what_makes_the_next_file_fail_stops_writing() {
    for number in [libc::ENOSPC, libc::EDQUOT, libc::EIO, libc::EROFS, libc::EMFILE] {
        assert!(is_lasting(&io::Error::from_raw_os_error(number)), "{number}");
    }
    for number in [libc::EFBIG, libc::ENOENT, libc::EEXIST, libc::EACCES, libc::ENOTDIR] {
        assert!(!is_lasting(&io::Error::from_raw_os_error(number)), "{number}");
    }
    assert!(!is_lasting(&io::ErrorKind::FileTooLarge.into()) && !is_lasting(&io::ErrorKind::InvalidData.into()));
}
