//! Events a second of the operator tree and the key averages, on a trace of a million operators built in memory.
#![allow(missing_docs, reason = "criterion's macros write undocumented functions")]

use criterion::{Criterion, SamplingMode, Throughput, criterion_group, criterion_main};
use std::hint::black_box;
use tracetool::analysis::allocations::Allocations;
use tracetool::analysis::averages::{AveragesOptions, KeyAverages};
use tracetool::analysis::op_allocations::OpAllocations;
use tracetool::analysis::tree::OpTree;
use tracetool::trace::{
    Detail, Device, DeviceEvent, DeviceEventKind, Frame, FrameKind, MemoryEvent, Op, OpKind, StackId, Trace,
    TraceBuilder,
};
use tracetool::units::{Bytes, Nanos};

/// Modules called, each with a frame, seven operators, a runtime call, a kernel, an allocation and a free.
const CALLS: i64 = 125_000;

/// A training loop of linear layers: `linear`, in it `t` with views and `addmm` with a launch.
fn training() -> Trace {
    let mut b = TraceBuilder::new();
    let (main, lane) = (b.thread("1", "1"), b.thread("0", "7"));
    let device = b.device(Device::cuda(0));
    let dims = b.intern("[[512], [8192, 512], [512, 512], [], []]");
    let detail = b.detail(Detail { input_dims: dims, ..Detail::NONE });
    let names = ["aten::linear", "aten::t", "aten::transpose", "aten::as_strided", "aten::addmm", "cudaLaunchKernel"];
    let [linear, t, transpose, as_strided, addmm, launch] = names.map(|name| b.intern(name));
    let layers: Vec<_> = (0..48).map(|i| b.intern(&format!("nn.Module: Linear_{i}"))).collect();
    let kernel = b.intern("sm90_gemm");
    for call in 0..CALLS {
        let at = call * 1000;
        let id = call as u64 * 8;
        let spans = [
            (linear, 0, 900),
            (t, 20, 200),
            (transpose, 40, 160),
            (as_strided, 60, 40),
            (addmm, 300, 500),
            (as_strided, 320, 40),
            (as_strided, 380, 40),
        ];
        for (k, (name, start, length)) in (1..).zip(spans) {
            let op = Op::new(name, OpKind::Operator, main, Nanos(at + start), Nanos(length));
            b.push_op(Op { external_id: id + k, detail, ..op });
        }
        let op = Op::new(launch, OpKind::Runtime, main, Nanos(at + 500), Nanos(100));
        b.push_op(Op { external_id: id + 5, ..op });
        let event = DeviceEvent::new(kernel, DeviceEventKind::Kernel, lane, Nanos(at + 700), Nanos(800));
        b.push_device_event(DeviceEvent { external_id: id + 5, device: 0, ..event });
        b.push_frame(Frame {
            name: layers[call as usize % layers.len()],
            kind: FrameKind::Module,
            thread: main,
            start: Nanos(at),
            duration: Nanos(950),
            python_id: 0,
            parent_id: 0,
        });
        for (time, bytes) in [(450, 1 << 20), (940, -(1 << 20))] {
            b.push_memory(MemoryEvent {
                time: Nanos(at + time),
                bytes: Bytes(bytes),
                device,
                thread: main,
                address: 4096,
                total_allocated: Bytes(-1),
                total_reserved: Bytes(-1),
                stack: StackId::NONE,
            });
        }
    }
    b.finish()
}

fn analysis(c: &mut Criterion) {
    let trace = training();
    let rows = trace.ops().len() + trace.device_events().len() + trace.frames().len() + trace.memory().len();
    let mut group = c.benchmark_group("analysis");
    group.throughput(Throughput::Elements(rows as u64)).sample_size(10).sampling_mode(SamplingMode::Flat);
    group.bench_function("tree", |b| b.iter(|| black_box(OpTree::build(&trace))));
    let tree = OpTree::build(&trace);
    let allocated = OpAllocations::of(&trace, &Allocations::build(&trace), None);
    let allocated = allocated.as_ref();
    for (name, options) in [
        ("averages", AveragesOptions::default()),
        ("averages by shape", AveragesOptions { group_by_input_shape: true, ..AveragesOptions::default() }),
        ("averages by stack", AveragesOptions { group_by_stack_n: 5, ..AveragesOptions::default() }),
    ] {
        group.bench_function(name, |b| b.iter(|| black_box(KeyAverages::of_tree(&trace, &tree, allocated, &options))));
    }
    group.finish();
}

criterion_group!(benches, analysis);
criterion_main!(benches);
