//! fallocate, and finding holes and data.

use super::prelude::*;

pub(super) const CASES: &[Case] = cases! {
    grows_the_file_with_zeros:
        "open @f file rw,creat,excl; write @f abc; allocate @f 0 100000;
         is @f size 100000 room 100000; pread @f 0 abc; filled @f 3 99997 0",
    keeps_the_size_when_asked:
        "open @f file rw,creat,excl; write @f abc; allocate @f 0 1048576 keep; is @f size 3;
         fsync @f; is ^file room 1048576",
    does_not_touch_what_is_there:
        "open @f file rw,creat,excl; fill @f 0 10000 7; allocate @f 2000 3000;
         filled @f 0 10000 7; is @f size 10000",
    punches_a_hole:
        "open @f file rw,creat,excl; fill @f 0 65536 7; filled @f 0 65536 7;
         allocate @f 5000 30000 punch,keep; filled @f 0 5000 7; filled @f 5000 30000 0;
         filled @f 35000 30536 7; fsync @f; is ^file blocks-below 128",
    punch_beyond_the_end:
        "open @f file rw,creat,excl; fill @f 0 10000 7; allocate @f 8000 1048576 punch,keep;
         is @f size 10000; filled @f 0 8000 7; filled @f 8000 2000 0",
    zeroes_a_range [ZeroRange]:
        "open @f file rw,creat,excl; fill @f 0 20000 7; allocate @f 1000 9000 zero;
         filled @f 0 1000 7; filled @f 1000 9000 0; filled @f 10000 10000 7;
         allocate @f 15000 10000 zero; is @f size 25000",
    collapses_and_inserts [ShiftRange]:
        "open @f file rw,creat,excl; fill @f 0 4096 1; fill @f 4096 4096 2; fill @f 8192 4096 3;
         fill @f 12288 4096 4; allocate @f 4096 4096 collapse; is @f size 12288;
         allocate @f 8192 4096 insert; filled @f 0 4096 1; filled @f 4096 4096 3;
         filled @f 8192 4096 0; filled @f 12288 4096 4",
    refuses_to_shift [NoShiftRange]:
        "open @f file rw,creat,excl; fill @f 0 16384 7;
         EOPNOTSUPP allocate @f 4096 4096 {collapse,insert}; filled @f 0 16384 7",
    finds_data_and_holes:
        "open @f file rw,creat,excl; fill @f 1048576 4096 7; truncate @f 4194304; fsync @f;
         seekhole @f 0 0; seekdata @f 0 1048576; seekdata @f 1048586 1048586;
         ENXIO seekdata @f 1052672; seekhole @f 1048576 1052672; write @f at it;
         pread @f 1052672 at it",
    seek_for_data_at_the_end_is_enxio:
        "open @f file rw,creat,excl; ENXIO seekdata @f 0; write @f 0123456789;
         ENXIO {seekdata,seekhole} @f 10; ENXIO seekhole @f 1000",
    file_without_holes:
        "open @f file rw,creat,excl; fill @f 0 8192 1; fsync @f; seekdata @f 100 100;
         seekhole @f 100 8192",
};
