/**
 * Saving the configuration from the web UI on a full disk, and onto a file that is a mount of its own: the file is the
 * old one or the new one, and the answer says which. Needs file systems of its own, which only root can mount.
 */
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdtempSync, readdirSync, readFileSync, rmSync, statfsSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { startGateway } from "../support/gateway.ts";

const CONFIG = `config: { adminAddr: "127.0.0.1:0", allowConfigEdit: true }
gateways: { default: { port: 0, address: 127.0.0.1 } }
routes:
  - name: hello
    policies: { directResponse: { status: 200, body: hello } }
`;
/** Longer than the room that a file's last block may still have. */
const EDITED = `${CONFIG}${"# a comment that makes it longer\n".repeat(500)}`;
const skip = canMount() ? false : "needs root and mount(8)";

function mount(mounted: string[], args: readonly string[], place: string): void {
  const done = spawnSync("mount", [...args, place], { encoding: "utf8" });
  assert.equal(done.status, 0, done.stderr);
  mounted.unshift(place);
}

function canMount(): boolean {
  if (process.platform !== "linux" || process.getuid?.() !== 0) return false;
  const place = mkdtempSync(join(tmpdir(), "mount-"));
  const isMounted = spawnSync("mount", ["-t", "tmpfs", "tmpfs", place]).status === 0;
  if (isMounted) spawnSync("umount", [place]);
  rmSync(place, { recursive: true, force: true });
  return isMounted;
}

/** Leaves no block free. */
function fill(folder: string): void {
  const { bsize, bfree } = statfsSync(folder);
  if (bfree > 0) writeFileSync(join(folder, "filler"), Buffer.alloc(bsize * bfree));
  assert.equal(statfsSync(folder).bfree, 0);
}

async function save(adminUrl: string, file: string): Promise<{ status: number; text: string }> {
  const shown = (await (await fetch(`${adminUrl}/ui/api/config-text`)).json()) as {
    files: { file: string; base: string }[];
  };
  const base = shown.files.find((one) => one.file === file)?.base;
  const answer = await fetch(`${adminUrl}/ui/api/save`, {
    method: "POST",
    headers: { "content-type": "application/json", origin: adminUrl },
    body: JSON.stringify({ file, base, text: EDITED }),
  });
  return { status: answer.status, text: await answer.text() };
}

for (const isMountOfItsOwn of [false, true]) {
  test(`a save on a full disk leaves the file as it was${isMountOfItsOwn ? ", also one that is mounted" : ""}`, {
    skip,
  }, async (t) => {
    const gateway = await startGateway(CONFIG);
    const disk = isMountOfItsOwn ? mkdtempSync(join(tmpdir(), "disk-")) : gateway.folder;
    const mounted: string[] = [];
    // In this order: closing the gateway removes its folder.
    t.after(async () => {
      for (const place of mounted) spawnSync("umount", [place]);
      await gateway.close();
      rmSync(disk, { recursive: true, force: true });
    });
    const file = join(gateway.folder, "config.yaml");
    mount(mounted, ["-t", "tmpfs", "-o", "size=64k", "tmpfs"], disk);
    writeFileSync(join(disk, "config.yaml"), CONFIG, { mode: 0o640 });
    if (isMountOfItsOwn) mount(mounted, ["--bind", join(disk, "config.yaml")], file);
    fill(disk);

    const refused = await save(gateway.adminUrl, file);
    assert.equal(refused.status, 507, refused.text);
    assert.match(refused.text, /^cannot save \S+config\.yaml: ENOSPC: no space left on device/);
    assert.equal(readFileSync(file, "utf8"), CONFIG);

    rmSync(join(disk, "filler"));
    const loaded = gateway.logged("configuration loaded");
    const saved = await save(gateway.adminUrl, file);
    assert.equal(saved.status, 200, saved.text);
    assert.equal(readFileSync(file, "utf8"), EDITED);
    assert.equal(statSync(file).mode & 0o777, 0o640);
    await loaded;
    assert.deepEqual(
      readdirSync(gateway.folder).filter((name) => name !== "config.yaml"),
      [],
    );
  });
}
