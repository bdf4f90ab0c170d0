//! The machine that qemu emulates. The memory of a baked machine fits only the same hardware.

use std::path::Path;
use std::process::{Command, Stdio};

/// What the kernel is told. The clock is read from the processor: any other is slow under emulation. On a busy machine
/// the kernel would think that its timer does not tick, and panic.
const KERNEL: &str = "console=ttyS0 root=/dev/vda rw net.ifnames=0 mitigations=off tsc=reliable no_timer_check quiet \
                      panic=-1 systemd.show_status=no random.trust_cpu=on";

/// The command that turns a machine on: kernel and initial RAM disk of `baked`, `disk` as its root, sockets and logs in
/// `run`, its clock at `clock` (UTC, as `2026-01-02T03:04:05`).
///
/// It ends with the thread that starts it, and it is a little more important than what else runs: seconds in it are long.
/// A write that the machine has flushed reaches the disk, others may be lost when the process is killed.
pub fn qemu(baked: &Path, disk: &Path, run: &Path, clock: &str) -> Command {
    let mut command = Command::new("setsid");
    // Where Linux shares the processor between sessions first, nice counts only inside of one: so the session has its own.
    let start = "echo -10 >/proc/self/autogroup; exec setpriv --pdeathsig KILL nice -n -5 qemu-system-x86_64 \"$@\"";
    command.args(["sh", "-c", start, "qemu"]);
    command.args(["-nodefaults", "-no-user-config", "-display", "none", "-nic", "none"]);
    command.args([
        "-machine",
        "pc,usb=off",
        "-accel",
        "tcg,thread=multi",
        "-cpu",
        "max,la57=off",
    ]);
    command.args(["-smp", "2", "-m", "4096", "-device", "virtio-rng-pci"]);
    command.arg("-rtc").arg(format!("base={clock}"));
    command.arg("-kernel").arg(baked.join("vmlinuz"));
    command.arg("-initrd").arg(baked.join("initrd.img"));
    command.args(["-append", KERNEL]);
    command.arg("-drive").arg(format!(
        "id=root,if=none,format=qcow2,cache=writeback,discard=unmap,file={}",
        disk.display()
    ));
    command.args(["-device", "virtio-blk-pci,drive=root", "-device", "virtio-serial-pci"]);
    let socket = |name: &str| format!("path={},server=on,wait=off", run.join(name).display());
    command
        .arg("-chardev")
        .arg(format!("socket,id=agent,{}", socket("agent")));
    command.args(["-device", "virtserialport,chardev=agent,name=quantykube.agent"]);
    command.arg("-chardev").arg(format!("socket,id=qmp,{}", socket("qmp")));
    command.args(["-mon", "chardev=qmp,mode=control"]);
    for (id, name) in [("ttyS0", "console"), ("ttyS1", "notes"), ("ttyS2", "events")] {
        let file = run.join(name).display().to_string();
        command
            .arg("-chardev")
            .arg(format!("file,id={id},append=on,path={file}"));
        command.arg("-serial").arg(format!("chardev:{id}"));
    }
    command.stdin(Stdio::null()).stdout(Stdio::null());
    command
}
