//! INIT requests of any version: 16 bytes or more after the header.
#![no_main]

use libfuzzer_sys::fuzz_target;
use thrufs_abi::version::{Agreement, KERNEL_MINOR, MIN_MINOR, negotiate};
use thrufs_abi::{
    Dialect, InitFlags, NodeId, Opcode, Operation, Payload, Request, RequestBuilder, Unique,
};

fuzz_target!(|body: &[u8]| {
    let bytes = RequestBuilder::new(Opcode::Init, Unique(2), NodeId(0))
        .bytes(body)
        .finish();
    let Ok(request) = Request::parse(&bytes, Dialect::INITIAL, Payload::Inline) else {
        return;
    };
    let Operation::Init { arg, flags } = request.operation else {
        panic!("INIT came out as {:?}", request.operation);
    };
    let word = |at: usize| {
        let field = body
            .get(at * 4..at * 4 + 4)
            .map(|field| field.try_into().expect("4 bytes"));
        field.map(u32::from_ne_bytes)
    };
    assert_eq!([Some(arg.major), Some(arg.minor)], [word(0), word(1)]);
    let upper = if flags.contains(InitFlags::INIT_EXT) {
        word(4).expect("it is said")
    } else {
        0
    };
    let lower = word(3).expect("the least that there is");
    assert_eq!(flags.bits(), u64::from(upper) << 32 | u64::from(lower));
    if let Agreement::Speak { minor } = negotiate(arg.major, arg.minor) {
        assert!((MIN_MINOR..=KERNEL_MINOR).contains(&minor) && minor <= arg.minor);
    }
});
