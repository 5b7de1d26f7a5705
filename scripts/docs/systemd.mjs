/**
 * Runs the systemd commands of the pages with a real systemd in separate namespaces. /etc, /run, /tmp, /var/lib and
 * /usr/local/bin are copies in memory, so the machine is not changed.
 */
import { spawn, spawnSync } from "node:child_process";
import { existsSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { root } from "../steps.mjs";

const SYSTEMD = ["/lib/systemd/systemd", "/usr/lib/systemd/systemd"].find(existsSync);
const UNIT = "mcp-llm-gateway.service";
const PATIENCE_MS = 120_000;
/** The default services of a machine are not needed here. */
const MASKED = ["systemd-udevd", "systemd-udev-trigger", "systemd-tmpfiles-setup", "systemd-sysctl", "systemd-logind"];

const FIRST = `set -e
mount --make-rprivate /
mkdir /tmp/etc-copy && cp -a /etc/. /tmp/etc-copy/
mount -t tmpfs tmpfs /etc && cp -a /tmp/etc-copy/. /etc/
for folder in /run /tmp /var/lib /usr/local/bin; do mount -t tmpfs tmpfs $folder; done
mkdir -p /run/systemd/system
for name in ${MASKED.join(" ")}; do ln -sf /dev/null /etc/systemd/system/$name.service; done
ip link set lo up
export container=test
exec "$0" --system --unit=basic.target --log-target=null --show-status=no
`;

/** Why it cannot be run here, or undefined. */
export function obstacle() {
  if (process.platform !== "linux" || process.getuid?.() !== 0) return "needs root on Linux";
  if (SYSTEMD === undefined) return "there is no systemd";
  const tried = spawnSync("unshare", ["--mount", "--pid", "--fork", "--net", "--cgroup", "ip", "link"], {
    stdio: "ignore",
  });
  return tried.status === 0 ? undefined : "namespaces (unshare) or the program ip are not available";
}

/** Runs the commands; `check` is given what reads from inside. */
export async function withSystemd(run) {
  const flags = ["--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--net", "--uts", "--ipc", "--cgroup"];
  const outer = spawn("unshare", [...flags, "sh", "-c", FIRST, SYSTEMD], { stdio: ["ignore", "inherit", "inherit"] });
  try {
    const pid = await until("a first process", () => childOf(outer.pid));
    const inside = (command) =>
      spawnSync("nsenter", ["-t", String(pid), "--all", "sh", "-c", `cd ${root} && ${command}`], { encoding: "utf8" });
    await until("systemd", () => /running|degraded/.test(inside("systemctl is-system-running").stdout));
    await run(inside);
  } finally {
    outer.kill("SIGKILL");
  }
}

/** Installs, starts and upgrades as described in the pages. */
export async function testSystemd(install, upgrade) {
  await withSystemd(async (inside) => {
    const must = (command) => {
      const { status, stdout, stderr } = inside(command);
      console.log(`# ${command}`);
      if (status === 0) return stdout.trim();
      const log = inside(`journalctl -u ${UNIT} --no-pager; systemctl status ${UNIT} --no-pager`).stdout;
      throw new Error(`${command}: exit code ${status}: ${stderr}${stdout}\n${log}`);
    };
    // The page's own file name; it is read by everybody.
    const config = join(root, "config.yaml");
    const isOurs = !existsSync(config);
    if (isOurs) writeFileSync(config, CONFIG);
    try {
      for (const command of install) must(command);
      const answer = must("curl -sS --max-time 10 http://127.0.0.1:3000/");
      if (answer !== "from systemd") throw new Error(`answered ${answer}`);
      const pid = must(`systemctl show -p MainPID --value ${UNIT}`);
      for (const command of upgrade) must(command);
      const next = await until("another main process", () => {
        const now = inside(`systemctl show -p MainPID --value ${UNIT}`).stdout.trim();
        return now !== pid && now !== "0" && now;
      });
      await until("the end of the old process", () => inside(`test -d /proc/${pid}`).status !== 0);
      must("curl -sS --max-time 10 http://127.0.0.1:3000/");
      if (must(`systemctl is-active ${UNIT}`) !== "active") throw new Error("the unit is not active after an upgrade");
      console.log(`systemd: installed, started and upgraded (main process ${pid}, then ${next})`);
    } finally {
      if (isOurs) rmSync(config);
    }
  });
}

const CONFIG = `gateways: { default: { port: 3000 } }
routes: [{ policies: { directResponse: { body: from systemd } } }]
`;

function childOf(pid) {
  const [first] = readFileSync(`/proc/${pid}/task/${pid}/children`, "utf8").trim().split(" ");
  return first || undefined;
}

async function until(what, look) {
  const end = Date.now() + PATIENCE_MS;
  for (;;) {
    const found = look();
    if (found) return found;
    if (Date.now() > end) throw new Error(`waited in vain for ${what}`);
    await sleep(200);
  }
}
