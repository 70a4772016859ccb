use super::*;
use crate::trace::{
    Detail, DeviceEvent, Frame, FrameKind, MemoryEvent, Op, OutOfMemory, StackId, ThreadId, TraceBuilder,
};
use proptest::prelude::*;

/// Builds small traces: thread `tid` of process 1, times in nanoseconds.
#[derive(Default)]
struct Timeline(TraceBuilder);

impl Timeline {
    fn thread(&mut self, tid: &str) -> ThreadId {
        self.0.thread("1", tid)
    }

    fn op(&mut self, name: &str, tid: &str, span: (i64, i64), id: u64) -> &mut Self {
        self.event(name, OpKind::Operator, tid, span, id, Detail::NONE)
    }

    fn event(
        &mut self,
        name: &str,
        kind: OpKind,
        tid: &str,
        (start, end): (i64, i64),
        external_id: u64,
        detail: Detail,
    ) -> &mut Self {
        let (name, thread, detail) = (self.0.intern(name), self.thread(tid), self.0.detail(detail));
        let op = Op::new(name, kind, thread, Nanos(start), Nanos(end - start));
        self.0.push_op(Op { external_id, detail, ..op });
        self
    }

    fn shaped(&mut self, name: &str, tid: &str, span: (i64, i64), dims: &str) -> &mut Self {
        let detail = Detail { input_dims: self.0.intern(dims), ..Detail::NONE };
        self.event(name, OpKind::Operator, tid, span, 0, detail)
    }

    fn on_device(&mut self, name: &str, kind: DeviceEventKind, span: (i64, i64), id: u64, device: i32) -> &mut Self {
        let (name, lane) = (self.0.intern(name), self.0.thread(&device.to_string(), "7"));
        let event = DeviceEvent::new(name, kind, lane, Nanos(span.0), Nanos(span.1 - span.0));
        let device = if kind == DeviceEventKind::Annotation { -1 } else { device };
        self.0.push_device_event(DeviceEvent { external_id: id, device, ..event });
        self
    }

    fn kernel(&mut self, span: (i64, i64), id: u64) -> &mut Self {
        self.on_device("kernel", DeviceEventKind::Kernel, span, id, 0)
    }

    fn memory(&mut self, tid: &str, time: i64, bytes: i64, device: Device) -> &mut Self {
        let (thread, device) = (self.thread(tid), self.0.device(device));
        let unknown = Bytes(-1);
        self.0.push_memory(MemoryEvent {
            time: Nanos(time),
            bytes: Bytes(bytes),
            device,
            thread,
            address: 0,
            total_allocated: unknown,
            total_reserved: unknown,
            stack: StackId::NONE,
        });
        self
    }

    fn frame(&mut self, name: &str, tid: &str, (start, end): (i64, i64)) -> &mut Self {
        let (name, thread) = (self.0.intern(name), self.thread(tid));
        self.0.push_frame(Frame {
            name,
            kind: FrameKind::Function,
            thread,
            start: Nanos(start),
            duration: Nanos(end - start),
            python_id: 0,
            parent_id: 0,
        });
        self
    }

    fn finish(&mut self) -> Trace {
        std::mem::take(&mut self.0).finish()
    }

    fn averages(&mut self, options: &AveragesOptions) -> KeyAverages {
        KeyAverages::compute(&self.finish(), options)
    }

    fn plain(&mut self) -> KeyAverages {
        self.averages(&AveragesOptions::default())
    }
}

fn row<'a>(averages: &'a KeyAverages, key: &str) -> &'a KeyAverage {
    averages.rows.iter().find(|r| r.key == key).unwrap()
}

fn keys(averages: &KeyAverages) -> Vec<&str> {
    averages.rows.iter().map(|r| r.key.as_str()).collect()
}

/// Device bytes and self device bytes.
fn device_memory(averages: &KeyAverages, key: &str) -> (i64, i64) {
    let row = row(averages, key);
    (row.device_memory_usage.0, row.self_device_memory_usage.0)
}

const CUDA: Device = Device::cuda(0);

#[test]
fn memory_of_a_row_is_the_net_of_all_events_while_it_ran_on_any_thread() {
    //  1: [outer  [inner  ]    ]        +100 in inner, -30 in outer
    //  2:                  -5           on another thread
    let averages = Timeline::default()
        .op("outer", "1", (0, 100), 0)
        .op("inner", "1", (10, 50), 0)
        .memory("1", 20, 100, CUDA)
        .memory("2", 60, -5, CUDA)
        .memory("1", 70, -30, CUDA)
        .memory("1", 20, 8, Device::CPU)
        .plain();
    assert_eq!(device_memory(&averages, "outer"), (65, -35));
    assert_eq!(device_memory(&averages, "inner"), (100, 100));
    assert_eq!(row(&averages, "inner").cpu_memory_usage, Bytes(8));
    assert_eq!(row(&averages, "outer").self_cpu_memory_usage, Bytes(0));
}

#[test]
fn memory_at_the_very_start_and_end_of_an_event_counts() {
    let averages = Timeline::default()
        .op("a", "1", (10, 20), 0)
        .op("b", "1", (20, 30), 0)
        .memory("1", 10, 1, CUDA)
        .memory("1", 20, 2, CUDA)
        .memory("1", 30, 4, CUDA)
        .plain();
    assert_eq!((device_memory(&averages, "a").0, device_memory(&averages, "b").0), (3, 6));
}

#[test]
fn memory_outside_all_events_and_out_of_memory_are_rows_of_their_own() {
    //  [a]      +7 (outside)      oom
    let mut t = Timeline::default();
    let (thread, device) = (t.thread("1"), t.0.device(CUDA));
    t.0.push_out_of_memory(OutOfMemory {
        time: Nanos(40),
        bytes: Bytes(1 << 40),
        device,
        thread,
        total_allocated: Bytes(0),
        total_reserved: Bytes(0),
        stack: StackId::NONE,
    });
    let averages = t.op("a", "1", (0, 10), 0).memory("1", 5, 1, CUDA).memory("1", 20, 7, CUDA).plain();
    assert_eq!(keys(&averages), ["a", "[memory]", "[OutOfMemory]"]);
    assert_eq!(device_memory(&averages, "[memory]"), (7, 7));
    assert_eq!(device_memory(&averages, "[OutOfMemory]"), (0, 0));
    assert_eq!(row(&averages, "[OutOfMemory]").count, 1);
}

#[test]
fn only_the_asked_for_device_counts() {
    let mut t = Timeline::default();
    t.op("a", "1", (0, 10), 1).memory("1", 1, 1, CUDA).memory("1", 2, 2, Device::cuda(1));
    t.memory("1", 3, 4, Device::CPU).memory("1", 20, 8, CUDA);
    t.kernel((5, 7), 1).on_device("other", DeviceEventKind::Kernel, (5, 8), 1, 1);
    t.on_device("step", DeviceEventKind::Annotation, (5, 20), 0, 1);
    let options = AveragesOptions { device: Some(Device::cuda(1)), ..AveragesOptions::default() };
    let averages = t.averages(&options);
    assert_eq!(keys(&averages), ["a", "step", "other"]);
    let a = row(&averages, "a");
    assert_eq!((a.device_memory_usage, a.cpu_memory_usage, a.device_time_total), (Bytes(2), Bytes(0), Nanos(3)));
}

#[test]
fn device_time_is_that_of_what_an_operator_and_those_inside_launched() {
    //  cpu: [linear [addmm]]          gpu:  <2><3> of addmm, <5> of linear, the annotation's shadow of 40
    let averages = Timeline::default()
        .op("linear", "1", (0, 100), 1)
        .op("addmm", "1", (10, 50), 2)
        .kernel((60, 62), 2)
        .on_device("copy", DeviceEventKind::Memcpy, (63, 66), 2, 0)
        .kernel((70, 75), 1)
        .on_device("forward", DeviceEventKind::Annotation, (60, 100), 1, 0)
        .plain();
    let times = |key: &str| (row(&averages, key).device_time_total.0, row(&averages, key).self_device_time_total.0);
    assert_eq!((times("linear"), times("addmm")), ((10, 5), (5, 5)));
    assert_eq!((times("kernel"), times("copy"), times("forward")), ((7, 7), (3, 3), (40, 40)));
    assert_eq!(averages.self_device_time_total, Nanos(10));
    assert_eq!(averages.self_cpu_time_total, Nanos(100));
    assert_eq!(row(&averages, "kernel").device_type, DeviceType::CUDA);
}

#[test]
fn a_folded_call_counts_once_and_keeps_the_kernels_of_the_inner_one() {
    let averages = Timeline::default()
        .op("norm", "1", (0, 100), 1)
        .op("norm", "1", (10, 90), 2)
        .kernel((200, 230), 2)
        .memory("1", 50, 16, CUDA)
        .plain();
    let norm = row(&averages, "norm");
    assert_eq!((norm.count, norm.cpu_time_total, norm.self_cpu_time_total), (1, Nanos(100), Nanos(100)));
    assert_eq!((norm.device_time_total, norm.self_device_time_total), (Nanos(30), Nanos(30)));
    assert_eq!(device_memory(&averages, "norm"), (16, 16));
}

#[test]
fn steps_are_one_row_and_an_annotation_is_not_an_operator_of_its_name() {
    let mut t = Timeline::default();
    for (step, start) in [("ProfilerStep#3", 0), ("ProfilerStep#4", 10)] {
        t.event(step, OpKind::Annotation, "1", (start, start + 10), 0, Detail::NONE);
    }
    t.event("x", OpKind::Annotation, "1", (30, 40), 0, Detail::NONE).op("x", "1", (50, 60), 0);
    let averages = t.plain();
    assert_eq!(keys(&averages), ["ProfilerStep*", "x", "x"]);
    assert_eq!(
        averages.rows.iter().map(|r| (r.count, r.is_user_annotation)).collect::<Vec<_>>(),
        [(2, true), (1, true), (1, false)]
    );
}

#[test]
fn a_collective_has_time_and_memory_but_none_of_its_own() {
    let averages = Timeline::default()
        .event("gloo:all_reduce", OpKind::Annotation, "1", (0, 100), 1, Detail::NONE)
        .op("copy", "1", (10, 20), 2)
        .kernel((15, 18), 1)
        .memory("1", 12, 64, CUDA)
        .plain();
    let collective = row(&averages, "gloo:all_reduce");
    assert_eq!((collective.cpu_time_total, collective.self_cpu_time_total), (Nanos(100), Nanos(0)));
    assert_eq!(device_memory(&averages, "gloo:all_reduce"), (64, 0));
    assert_eq!(collective.device_time_total, Nanos(0));
    assert_eq!(averages.self_cpu_time_total, Nanos(10));
}

#[test]
fn self_time_is_never_negative() {
    //  [a              ]     inside it, and one after the other cut into: [b    ]
    //                                                                        [c    ]
    //                                                                           [d    ]
    let averages = Timeline::default()
        .op("a", "1", (0, 20), 0)
        .op("b", "1", (1, 11), 0)
        .op("c", "1", (5, 15), 0)
        .op("d", "1", (9, 19), 0)
        .plain();
    assert_eq!(row(&averages, "a").self_cpu_time_total, Nanos(0));
}

#[test]
fn shapes_split_rows_where_asked_and_print_as_torch_prints_where_asked() {
    let build = || {
        let mut t = Timeline::default();
        t.shaped("mm", "1", (0, 1), "[[2, 3], [3, 4]]").shaped("mm", "1", (2, 3), "[[9, 3], [3, 4]]");
        t.shaped("cat", "1", (4, 5), "[[[1], [2]], []]").shaped("cat", "1", (6, 7), "[[[5]], []]");
        t.op("none", "1", (8, 9), 0);
        t
    };
    let shapes = |torch_shapes: bool| {
        let options = AveragesOptions { group_by_input_shape: true, torch_shapes, ..AveragesOptions::default() };
        let rows = build().averages(&options).rows;
        rows.into_iter().map(|r| (r.key, r.input_shapes, r.count)).collect::<Vec<_>>()
    };
    let known = |key: &str, shapes: &str, count| (key.to_owned(), Some(shapes.to_owned()), count);
    assert_eq!(
        shapes(false),
        [
            known("mm", "[[2, 3], [3, 4]]", 1),
            known("mm", "[[9, 3], [3, 4]]", 1),
            known("cat", "[[[1], [2]], []]", 1),
            known("cat", "[[[5]], []]", 1),
            ("none".to_owned(), None, 1)
        ]
    );
    assert_eq!(shapes(true)[2..], [known("cat", "[[], []]", 2), known("none", "[]", 1)]);
    assert_eq!(build().plain().rows.len(), 3);
}

#[test]
fn flops_are_summed_over_calls() {
    let mut t = Timeline::default();
    t.shaped("aten::mm", "1", (0, 1), "[[2, 3], [3, 4]]").shaped("aten::mm", "1", (2, 3), "[[1, 1], [1, 1]]");
    assert_eq!(row(&t.plain(), "aten::mm").flops, 48 + 2);
}

#[test]
fn stacks_are_the_innermost_frames_around_an_operators_start() {
    //  1: [main              ]
    //      [train  ][eval   ]
    //       op  op   op         op       the last one outside
    let build = || {
        let mut t = Timeline::default();
        t.frame("main", "1", (0, 100)).frame("train", "1", (10, 50)).frame("eval", "1", (50, 90));
        t.op("op", "1", (20, 21), 0).op("op", "1", (30, 31), 0).op("op", "1", (50, 51), 0);
        t.op("op", "1", (200, 201), 0).op("op", "2", (30, 32), 0);
        t
    };
    let stacks = |n| {
        let rows = build().averages(&AveragesOptions { group_by_stack_n: n, ..AveragesOptions::default() }).rows;
        rows.into_iter().map(|r| (r.stack.join(" < "), r.count)).collect::<Vec<_>>()
    };
    let expected = |rows: &[(&str, u64)]| rows.iter().map(|(s, c)| ((*s).to_owned(), *c)).collect::<Vec<_>>();
    assert_eq!(stacks(1), expected(&[("train", 2), ("", 2), ("eval", 1)]));
    assert_eq!(stacks(5), expected(&[("train < main", 2), ("", 2), ("eval < main", 1)]));
}

#[test]
fn backward_operators_without_frames_have_the_stack_of_their_forward_operator() {
    //  1: [loss                 ][model       ]            frames
    //       op of no gradient      op of number 5
    //  2:                                          [backward of number 5 [op]]
    let mut t = Timeline::default();
    t.frame("loss", "1", (0, 20)).frame("model", "1", (20, 40));
    for (name, tid, span, sequence, forward_thread) in
        [("early", "1", (5, 6), 5, 0), ("mul", "1", (25, 26), 5, 0), ("MulBackward0", "2", (50, 60), 5, 1)]
    {
        let (name, thread) = (t.0.intern(name), t.thread(tid));
        let op = Op::new(name, OpKind::Operator, thread, Nanos(span.0), Nanos(span.1 - span.0));
        t.0.push_op(Op { sequence, forward_thread, ..op });
    }
    t.op("inner", "2", (52, 53), 0).op("other", "2", (70, 71), 0);
    let averages = t.averages(&AveragesOptions { group_by_stack_n: 1, ..AveragesOptions::default() });
    let stack = |key: &str| row(&averages, key).stack.join("");
    assert_eq!(["early", "mul", "MulBackward0", "inner", "other"].map(stack), ["loss", "model", "model", "model", ""]);
}

#[test]
fn old_traces_carry_the_stack_in_the_operator() {
    let mut t = Timeline::default();
    let detail = Detail { call_stack: t.0.intern("a.py(1): f;b.py(2): g;c.py(3): h"), ..Detail::NONE };
    t.event("op", OpKind::Operator, "1", (0, 1), 0, detail);
    let options = AveragesOptions { group_by_stack_n: 2, ..AveragesOptions::default() };
    assert_eq!(t.averages(&options).rows[0].stack, ["a.py(1): f", "b.py(2): g"]);
}

#[test]
fn rows_come_in_the_order_of_their_first_event_and_top_level_rows_are_those_whose_first_stands_alone() {
    //  [b [a]]  <kernel>  [a]
    let mut t = Timeline::default();
    t.op("b", "1", (0, 10), 0).op("a", "1", (2, 3), 0).kernel((20, 21), 0).op("a", "1", (30, 31), 0);
    let trace = t.finish();
    let all = KeyAverages::compute(&trace, &AveragesOptions::default());
    assert_eq!(keys(&all), ["b", "a", "kernel"]);
    let options = AveragesOptions { top_level_only: true, ..AveragesOptions::default() };
    let top = KeyAverages::compute(&trace, &options);
    assert_eq!(keys(&top), ["b", "kernel"]);
    assert_eq!(top.self_cpu_time_total, all.self_cpu_time_total);
}

#[test]
fn a_shadow_is_as_long_as_what_it_spans() {
    //  <kernel>      100 to 110, 120 to 130; the exporter draws the shadow from 99 to 131
    let build = |end| {
        let mut t = Timeline::default();
        t.kernel((100, 110), 0).kernel((120, 130), 0);
        t.on_device("step", DeviceEventKind::Annotation, (99, end), 0, 0);
        t.plain()
    };
    assert_eq!(row(&build(131), "step").device_time_total, Nanos(30));
    assert_eq!(row(&build(130), "step").device_time_total, Nanos(30));
    assert_eq!(row(&build(140), "step").device_time_total, Nanos(40));
}

#[test]
fn a_kernel_comes_before_the_shadow_that_spans_but_it() {
    let mut t = Timeline::default();
    t.on_device("step", DeviceEventKind::Annotation, (99, 111), 0, 0).kernel((100, 110), 0);
    assert_eq!(keys(&t.plain()), ["kernel", "step"]);
}

#[test]
fn a_trace_without_events_has_no_rows() {
    assert_eq!(Timeline::default().plain(), KeyAverages::default());
}

#[test]
fn rows_serialize_under_pytorchs_names_with_units() {
    let averages = Timeline::default().op("a", "1", (0, 10), 0).kernel((1, 2), 0).plain();
    let json = serde_json::to_value(&averages).unwrap();
    let row = &json["rows"][1];
    assert_eq!((row["key"].as_str(), row["device_type"].as_str()), (Some("kernel"), Some("CUDA")));
    assert_eq!(row["self_device_time_total_ns"], 1);
    assert!(row["input_shapes"].is_null() && row["allocated_bytes"].is_null());
    assert_eq!(json["self_cpu_time_total_ns"], 10);
}

/// An operator and a memory event of a random trace.
type RandomOp = (u8, u8, i64, i64);

proptest! {
    #[test]
    fn memory_and_time_are_what_adding_event_by_event_gives(
        ops in proptest::collection::vec((0u8..3, 0u8..2, 0i64..40, 0i64..20), 0..20) ,
        memory in proptest::collection::vec((0i64..70, -9i64..9, 0u8..2), 0..30),
    ) {
        let mut t = Timeline::default();
        for (name, tid, start, length) in &ops as &Vec<RandomOp> {
            t.op(["a", "b", "c"][usize::from(*name)], &tid.to_string(), (*start, start + length), 0);
        }
        for (time, bytes, device) in &memory {
            t.memory("0", *time, *bytes, if *device == 0 { Device::CPU } else { CUDA });
        }
        let trace = t.finish();
        let tree = OpTree::build(&trace);
        let averages = KeyAverages::compute(&trace, &AveragesOptions::default());
        let (ops, memory) = (trace.ops(), trace.memory());
        let net = |i: usize| -> i64 {
            let inside = |k: &usize| ops.start()[i] <= memory.time()[*k] && memory.time()[*k] <= ops.end(i);
            let on_device = |k: &usize| !trace.device(memory.device()[*k]).kind.is_cpu();
            (0..memory.len()).filter(inside).filter(on_device).map(|k| memory.bytes()[k].0).sum()
        };
        let children = tree.children();
        for name in ["a", "b", "c"] {
            let calls: Vec<usize> =
                (0..ops.len()).filter(|i| tree.is_call(*i) && trace.str(ops.name()[*i]) == name).collect();
            let Some(row) = averages.rows.iter().find(|r| r.key == name) else {
                prop_assert!(calls.is_empty());
                continue;
            };
            prop_assert_eq!(row.count, calls.len() as u64);
            prop_assert_eq!(row.device_memory_usage.0, calls.iter().map(|i| net(*i)).sum::<i64>());
            let own = |i: &usize| net(*i) - children.of(*i).map(net).sum::<i64>();
            prop_assert_eq!(row.self_device_memory_usage.0, calls.iter().map(own).sum::<i64>());
            let duration = |i: usize| ops.duration()[i].0;
            let own = |i: &usize| (duration(*i) - children.of(*i).map(duration).sum::<i64>()).max(0);
            prop_assert_eq!(row.self_cpu_time_total.0, calls.iter().map(own).sum::<i64>());
        }
        let covered = |k: usize| (0..ops.len()).any(|i| ops.start()[i] <= memory.time()[k] && memory.time()[k] <= ops.end(i));
        let outside = (0..memory.len()).filter(|k| !covered(*k)).count() as u64;
        prop_assert_eq!(averages.rows.iter().find(|r| r.key == "[memory]").map_or(0, |r| r.count), outside);
    }
}
