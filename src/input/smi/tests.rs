use super::*;
use proptest::prelude::*;

fn read(text: &str) -> SmiLog {
    read_smi(text.as_bytes(), &SmiOptions::default()).unwrap()
}

const MIB: i64 = 1 << 20;

#[test]
fn a_query_with_units_and_repeated_header_is_read_by_its_columns() {
    let header = "timestamp, index, name, memory.used [MiB], utilization.gpu [%], memory.total [MiB]\n";
    let log = read(&format!(
        "{header}1970/01/02 00:00:01.250, 0, NVIDIA X, 841 MiB, 22 %, 8192 MiB\n{header}\
         1970/01/02 00:00:02.000, 1, NVIDIA X, [N/A], [Not Supported], 8192 MiB\n"
    ));
    assert_eq!(log.gpus.len(), 2);
    assert_eq!(log.gpus[0].total, Some(Bytes(8192 * MIB)));
    let first = log.gpu_samples[0];
    assert_eq!(
        (first.time, first.used, first.utilization),
        (Nanos(86_401_250_000_000), Some(Bytes(841 * MIB)), Some(22.0))
    );
    assert_eq!(log.gpu_samples.len(), 1);
    assert!(log.diagnostics.is_empty(), "{:?}", log.diagnostics);
}

#[test]
fn columns_without_header_are_guessed_and_said_to_be() {
    let log = read("2026/12/01 03:08:25.839, 0, GPU-3-f, 5739, 3\n2026/12/01 03:08:25.942, 0, GPU-3-f, 6353, 0\n");
    assert_eq!(log.gpus[0].uuid.as_deref(), Some("GPU-3-f"));
    assert_eq!(log.gpus[0].index, Some(0));
    assert_eq!(log.gpu_samples[1].used, Some(Bytes(6353 * MIB)));
    assert_eq!(log.gpu_samples[0].utilization, Some(3.0));
    assert!(log.diagnostics.get("guessed-columns").is_some());
    let names = ["timestamp", "index", "memory.free"].map(String::from).to_vec();
    let options = SmiOptions { columns: Some(names), utc_offset: Nanos(3_600_000_000_000) };
    let log = read_smi(b"1970/01/01 01:00:00.000, 2, 5\n", &options).unwrap();
    assert_eq!((log.gpu_samples[0].time, log.gpu_samples[0].free), (Nanos(0), Some(Bytes(5 * MIB))));
}

#[test]
fn processes_are_told_by_card_and_pid_and_names_may_hold_commas() {
    let log = read(
        "timestamp, gpu_uuid, pid, process_name, used_gpu_memory [MiB]\n\
         1970/01/01 00:00:00.000, GPU-a, 7, python3 a, b, 100 MiB\n\
         1970/01/01 00:00:00.000, GPU-b, 7, python3, 200 MiB\n",
    );
    assert_eq!(log.processes.len(), 2);
    assert_eq!(log.processes[0].name.as_deref(), Some("python3 a, b"));
    assert_eq!(log.process_samples[1].used, Some(Bytes(200 * MIB)));
}

#[test]
fn dmon_and_pmon_are_read_by_their_header_too() {
    let log = read(
        "# gpu    pwr  gtemp     sm    mem     fb\n# Idx      W      C      %      %     MB\n\
            0     43     35      7      0   5739\n    1     43     35      0      0   1\n    0     43     35      9      0   5740\n",
    );
    assert_eq!(log.clock, Clock::Ticks);
    let times: Vec<_> = log.gpu_samples.iter().map(|s| (s.gpu, s.time.0 / 1_000_000_000)).collect();
    assert_eq!(times, [(0, 0), (1, 0), (0, 1)]);
    let log = read(
        "#Time        gpu         pid   type     sm     fb    command\n#HH:MM:SS    Idx           #    C/G      %     MB    name\n\
         23:59:59      0          7     C     12    608    python3 -u x\n 00:00:01      0          -     -      -      -    -\n\
         00:00:02      0          7     C      -    610    python3\n",
    );
    assert_eq!(log.clock, Clock::TimeOfDay);
    assert_eq!(log.processes[0].pid, 7);
    let step = log.process_samples[1].time - log.process_samples[0].time;
    assert_eq!(step, Nanos(3_000_000_000));
    assert_eq!(log.process_samples[0].used, Some(Bytes(608 * MIB)));
}

#[test]
fn lines_that_are_no_samples_are_counted_and_a_log_without_any_is_an_error() {
    let log = read(
        "timestamp, index, memory.used [MiB]\n1970/01/01 00:00:00.000, 0, 1 MiB\nUnable to determine the device handle\n",
    );
    assert_eq!(log.diagnostics.get("no-sample").map(|d| d.count), Some(1));
    for text in ["", "hello\n", "{\"a\": 1}", "timestamp, index\n", "a,b,c\n1,2,3\n"] {
        assert!(read_smi(text.as_bytes(), &SmiOptions::default()).is_err(), "{text:?}");
    }
}

#[test]
fn dates_are_days_since_1970() {
    assert_eq!(columns::date("1970/01/01"), Some(0));
    assert_eq!(columns::date("20261201"), Some(20_788));
    assert_eq!(columns::date("2024/02/29").zip(columns::date("2024/03/01")).map(|(a, b)| b - a), Some(1));
    assert_eq!(columns::date("2024/13/01"), None);
    assert_eq!(columns::time_of_day("24:00:00"), None);
}

proptest! {
    #[test]
    fn any_text_is_read_or_refused(text in "[a-z0-9,:/ #.%\\[\\]\\-\n]{0,200}") {
        let _ = read_smi(text.as_bytes(), &SmiOptions::default());
    }

    #[test]
    fn any_rows_under_a_header_are_read_or_skipped(rows in proptest::collection::vec("[0-9a-f,:/ .MiB%\\-]{0,60}", 0..20)) {
        let text = format!("timestamp, index, pid, process_name, memory.used [MiB], utilization.gpu [%]\n{}", rows.join("\n"));
        let _ = read_smi(text.as_bytes(), &SmiOptions::default());
    }
}

#[test]
fn more_cards_than_any_machine_has_are_left_out_and_counted() {
    let line = |i: usize| format!("2026/12/01 03:08:25.000, GPU-{i}, {i} MiB\n");
    let mut text = "timestamp, uuid, memory.used [MiB]\n".to_owned();
    text.extend((0..1030).map(line));
    text += &line(3);
    let log = read_smi(text.as_bytes(), &SmiOptions::default()).unwrap();
    assert_eq!((log.gpus.len(), log.gpu_samples.len()), (1024, 1025));
    let told = log.diagnostics.get("many-cards").unwrap();
    let first = text.find("2026/12/01 03:08:25.000, GPU-1024").map(|at| at as u64);
    assert_eq!((told.count, told.first_offset, told.severity), (6, first, Severity::Loss));
}

#[test]
fn processes_without_times_are_a_second_apart_from_when_they_come_again() {
    let log = read(
        "pid, used_gpu_memory [MiB]\n7, 10 MiB\n8, 20 MiB\npid, used_gpu_memory [MiB]\n7, 11 MiB\n9, 5 MiB\n7, 12 MiB\n",
    );
    let samples: Vec<_> = log.process_samples.iter().map(|s| (log.processes[s.process].pid, s.time.0)).collect();
    let second = 1_000_000_000;
    assert_eq!(samples, [(7, 0), (8, 0), (7, second), (9, second), (7, 2 * second)]);
}

#[test]
fn a_sample_without_its_time_among_others_with_theirs_is_no_sample() {
    let log = read(
        "timestamp, index, memory.used [MiB]\n2026/12/01 03:08:25.839, 0, 5 MiB\n[N/A], 0, 6 MiB\n\
         2026/12/01 03:08:27.839, 0, 7 MiB\n",
    );
    assert_eq!(log.clock, Clock::Wall);
    assert_eq!(log.gpu_samples.iter().map(|s| s.used.unwrap().0 / MIB).collect::<Vec<_>>(), [5, 7]);
    assert_eq!(log.diagnostics.get("no-sample").map(|told| told.count), Some(1));
}

#[test]
fn commas_belong_to_the_programs_name_wherever_it_stands() {
    for (header, line) in [
        ("process_name, pid, used_gpu_memory [MiB]", "a, b, 7, 10 MiB"),
        ("pid, process_name, used_gpu_memory [MiB]", "7, a, b, 10 MiB"),
    ] {
        let log = read(&format!("{header}\n{line}\n"));
        assert_eq!((log.processes[0].pid, log.processes[0].name.as_deref()), (7, Some("a, b")), "{line}");
    }
}

#[test]
fn logs_of_different_clocks_are_not_laid_on_one_axis() {
    let mut dated = read("timestamp, index, memory.used [MiB]\n2026/12/01 03:08:25.839, 0, 5 MiB\n");
    let undated = read("index, memory.used [MiB]\n0, 5 MiB\n");
    let error = dated.append(undated).unwrap_err().to_string();
    assert!(error.contains("dates and times") && error.contains("no times") && error.contains("-o DT"), "{error}");
    assert_eq!(dated.gpu_samples.len(), 1);
}
