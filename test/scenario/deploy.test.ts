/**
 * deploy/: the image's steps carried out without a container engine, the compose file against the files it mounts, and
 * the units against systemd's own checker, where there is one.
 */
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import {
  chmodSync,
  copyFileSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { after, before, test } from "node:test";
import { parse } from "yaml";
import { finish } from "../../src/base/sliced-work.ts";
import { loadConfig } from "../../src/config/load/load.ts";
import { startGatewayProcess } from "../support/gateway-process.ts";
import { buildStage, execForm, parseDockerfile } from "../support/package/dockerfile.ts";
import { npmEnvironment, pack } from "../support/package/packed.ts";

const CONFIG =
  'config: { adminAddr: "127.0.0.1:0" }\ngateways: { default: { port: 0, address: 127.0.0.1 } }\n' +
  "routes: [{ policies: { directResponse: { body: from the image } } }]\n";
const isRoot = process.getuid?.() === 0;
const stages = parseDockerfile(readFileSync("deploy/Dockerfile", "utf8"));

let folder: string;
let context: string;
before(() => {
  folder = mkdtempSync(join(tmpdir(), "gateway-deploy-"));
  chmodSync(folder, 0o755);
  context = join(folder, "context");
  mkdirSync(context);
  pack(context);
});
after(() => rmSync(folder, { recursive: true, force: true }));

test("the default target is the one without a shell", () => {
  assert.equal(stages.at(-1)?.name, "gateway");
  assert.match(stages.at(-1)?.base ?? "", /^gcr\.io\/distroless\//);
});

for (const target of ["gateway", "with-runners"]) {
  const stage = stages.find(({ name }) => name === target);
  test(`the image ${target} serves as its user from files that it cannot write`, async (t) => {
    assert.ok(stage);
    // Only root can give files to another user, as the image's own steps do.
    if (!isRoot && target === "with-runners") return t.skip("needs root");
    const uid = Number(stage.steps.find(({ instruction }) => instruction === "USER")?.rest.split(":")[0]);
    assert.ok(uid > 0, "the image does not run as root");
    const root = buildStage(stages, target, { context, out: join(folder, target), env: npmEnvironment(folder) });
    mkdirSync(join(root, "etc", "gateway"), { recursive: true });
    writeFileSync(join(root, "etc", "gateway", "config.yaml"), CONFIG);
    for (const entry of readdirSync(root, { recursive: true, withFileTypes: true }))
      if (!entry.isSymbolicLink()) chmodSync(join(entry.parentPath, entry.name), 0o555);

    const inside = (words: string[]): string[] =>
      words.map((word) =>
        /^(?:\/nodejs\/bin\/)?node$/.test(word) ? process.execPath : word.startsWith("/") ? join(root, word) : word,
      );
    const gateway = startGatewayProcess(t, inside(execForm(stage, "CMD")), {
      command: inside(execForm(stage, "ENTRYPOINT")),
      cwd: join(root, "etc", "gateway"),
      ...(isRoot ? { uid } : {}),
    });
    assert.equal(await (await fetch(`http://127.0.0.1:${await gateway.port()}/`)).text(), "from the image");

    const [file = "", ...args] = inside(execForm(stage, "HEALTHCHECK"));
    const health = (address: string) => spawnSync(file, [...args, address], { encoding: "utf8" }).status;
    const address = new URL(await gateway.adminUrl()).host;
    assert.equal(health(address), 0);
    gateway.child.kill("SIGTERM");
    assert.equal((await gateway.exited).code, 0);
    assert.equal(health(address), 1);
  });
}

interface Collector {
  receivers: { otlp: { protocols: { http: { endpoint: string } } } };
  service: { pipelines: Record<string, { receivers: string[] }> };
}

interface Compose {
  readonly services: Readonly<
    Record<string, { volumes?: string[]; build?: { context: string; dockerfile: string }; depends_on?: string[] }>
  >;
}

test("what the compose file mounts and builds from exists, and its gateway's configuration is valid", () => {
  const base = "deploy/compose";
  const { services } = parse(readFileSync(join(base, "compose.yaml"), "utf8")) as Compose;
  for (const [name, { volumes = [], build, depends_on = [] }] of Object.entries(services)) {
    for (const volume of volumes) assert.ok(existsSync(join(base, volume.split(":")[0] ?? "")), `${name}: ${volume}`);
    for (const other of depends_on) assert.ok(other in services, other);
    if (build) assert.ok(existsSync(resolve(base, build.context, build.dockerfile)), build.dockerfile);
  }
  const file = join(base, "gateway", "config.yaml");
  const loaded = finish(loadConfig([{ file, text: readFileSync(file, "utf8") }], {}));
  assert.ok(loaded.ok, loaded.ok ? "" : loaded.problems.map((problem) => problem.toLine()).join("\n"));
  // The limit's service, its domain and the scraped address are names of this file's services.
  const text = readFileSync(file, "utf8");
  const limits = parse(readFileSync(join(base, "ratelimit", "gateway.yaml"), "utf8")) as { domain: string };
  assert.ok(text.includes(`domain: ${limits.domain}`));
  assert.ok(text.includes("host: ratelimit:"));
  assert.ok(readFileSync(join(base, "prometheus", "prometheus.yaml"), "utf8").includes("gateway:15020"));
  assert.ok(text.includes('endpoint: "http://otel-collector:4318"') && "otel-collector" in services);
  const otel = parse(readFileSync(join(base, "otel", "config.yaml"), "utf8")) as Collector;
  assert.equal(otel.receivers.otlp.protocols.http.endpoint, "0.0.0.0:4318");
  for (const signal of ["traces", "metrics", "logs"])
    assert.deepEqual(otel.service.pipelines[signal]?.receivers, ["otlp"], signal);
  assert.match(text, /statsAddr: 0\.0\.0\.0:15020/);
});

test("the pages name files that exist, and build the image as its file says", () => {
  const pages = ["docs/install.md", "docs/deploy.md"].map((page) => readFileSync(page, "utf8")).join("\n");
  const named = [...pages.matchAll(/deploy\/[\w./-]*\w/g)].map(([path]) => path);
  assert.ok(named.length > 4);
  for (const path of named) assert.ok(existsSync(path), path);
  const builds = [...readFileSync("deploy/Dockerfile", "utf8").matchAll(/^#\s+(docker build .*)$/gm)];
  assert.equal(builds.length, 2);
  for (const [, command = ""] of builds) assert.ok(pages.includes(`$ ${command}`), command);
});

test("systemd accepts the units", (t) => {
  if (spawnSync("systemd-analyze", ["--version"]).error) return t.skip("there is no systemd-analyze");
  const units = readdirSync("deploy/systemd");
  for (const unit of units) copyFileSync(join("deploy/systemd", unit), join(folder, unit));
  // It also looks for the program.
  const service = join(folder, "mcp-llm-gateway.service");
  const text = readFileSync(service, "utf8");
  writeFileSync(service, text.replace("/usr/local/bin/gateway", process.execPath));
  const verified = spawnSync("systemd-analyze", ["verify", ...units.map((unit) => join(folder, unit))], {
    encoding: "utf8",
  });
  assert.deepEqual([verified.status, verified.stderr], [0, ""]);
  // A setting that does not exist is a warning, and therefore a failure here.
  writeFileSync(service, text.replace("[Service]", "[Service]\nNoSuchSetting=1"));
  const wrong = spawnSync("systemd-analyze", ["verify", service], { encoding: "utf8" });
  assert.match(wrong.stderr, /NoSuchSetting/);
});
