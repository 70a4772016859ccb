//! Devices: what kind, which one, and what the file says of them.

use serde::Serialize;
use std::fmt;
use std::str::FromStr;

/// The kind of a device, by the number that PyTorch's c10 library gives it.
///
/// Source: `c10/core/DeviceType.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceType(pub i16);

impl DeviceType {
    /// The host.
    pub const CPU: Self = Self(0);
    /// NVIDIA's.
    pub const CUDA: Self = Self(1);
    /// AMD's.
    pub const HIP: Self = Self(6);
    /// Intel's.
    pub const XPU: Self = Self(12);
    /// A back end from outside PyTorch, such as Ascend's NPU.
    pub const PRIVATE_USE_1: Self = Self(20);

    /// The name in lower case as `torch.device` writes it; `None` for a number that c10 does not name.
    pub fn name(self) -> Option<&'static str> {
        Some(match self.0 {
            0 => "cpu",
            1 => "cuda",
            2 => "mkldnn",
            3 => "opengl",
            4 => "opencl",
            5 => "ideep",
            6 => "hip",
            7 => "fpga",
            8 => "maia",
            9 => "xla",
            10 => "vulkan",
            11 => "metal",
            12 => "xpu",
            13 => "mps",
            14 => "meta",
            15 => "hpu",
            16 => "ve",
            17 => "lazy",
            18 => "ipu",
            19 => "mtia",
            20 => "privateuse1",
            _ => return None,
        })
    }

    /// Whether this is the host's memory.
    pub fn is_cpu(self) -> bool {
        self == Self::CPU
    }
}

impl fmt::Display for DeviceType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "type{}", self.0),
        }
    }
}

/// A device: `cpu`, `cuda:0`, `hip:1`, `type42:0`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Device {
    /// What kind it is.
    pub kind: DeviceType,
    /// Which of its kind; -1 for the host.
    pub index: i32,
}

impl Device {
    /// The host.
    pub const CPU: Self = Self { kind: DeviceType::CPU, index: -1 };

    /// CUDA device `index`.
    pub const fn cuda(index: i32) -> Self {
        Self { kind: DeviceType::CUDA, index }
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.kind.is_cpu() { write!(f, "cpu") } else { write!(f, "{}:{}", self.kind, self.index) }
    }
}

impl FromStr for Device {
    type Err = String;

    /// Reads what [`Display`](fmt::Display) writes; `cuda` alone is `cuda:0`.
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("expected a device such as cpu, cuda:0 or xpu:1, found {text:?}");
        let (kind, index) = text.split_once(':').unwrap_or((text, "0"));
        let named = (0..=i16::from(u8::MAX)).map(DeviceType).find(|k| k.name() == Some(kind));
        let numbered = || kind.strip_prefix("type").and_then(|n| n.parse().ok()).map(DeviceType);
        let kind = named.or_else(numbered).ok_or_else(wrong)?;
        let index = index.parse().map_err(|_| wrong())?;
        Ok(if kind.is_cpu() { Self::CPU } else { Self { kind, index } })
    }
}

/// What the file's `deviceProperties` says of a device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct DeviceProperties {
    /// Index of the device among its kind.
    pub id: i64,
    /// The product's name.
    pub name: String,
    /// Memory of the device in bytes, where the file says.
    pub total_memory_bytes: Option<u64>,
    /// Number of multiprocessors, where the file says.
    pub multiprocessors: Option<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_named_as_torch_names_them() {
        let name = |kind, index| Device { kind: DeviceType(kind), index }.to_string();
        assert_eq!(name(0, -1), "cpu");
        assert_eq!(name(0, 0), "cpu");
        assert_eq!(name(1, 0), "cuda:0");
        assert_eq!(name(6, 3), "hip:3");
        assert_eq!(name(20, 0), "privateuse1:0");
        assert_eq!(name(42, 0), "type42:0");
    }

    #[test]
    fn device_names_are_read_back() {
        for name in ["cpu", "cuda:0", "hip:3", "privateuse1:0", "type42:1"] {
            assert_eq!(name.parse::<Device>().unwrap().to_string(), name);
        }
        assert_eq!("cuda".parse(), Ok(Device::cuda(0)));
        assert!("gpu:0".parse::<Device>().is_err());
        assert!("cuda:x".parse::<Device>().is_err());
    }
}
