import assert from "node:assert/strict";
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { parse } from "yaml";
import { startGateway, type TestGateway } from "../support/gateway.ts";
import { gwctl } from "../support/gwctl.ts";
import { type GwctlGateway, openGwctlGateway } from "../support/gwctl-gateway.ts";

let world: GwctlGateway;
let gateway: TestGateway;
let folder: string;
let local: GwctlGateway["local"];
before(async () => {
  world = await openGwctlGateway();
  ({ gateway, folder, local } = world);
});
after(() => world?.close());

test("version, help and completion need no gateway [S9-3]", async () => {
  assert.match((await gwctl(["version"])).stdout, /^gwctl \d/);
  assert.match((await gwctl(["--version"])).stdout, /^gwctl \d/);
  const help = await gwctl(["proxy", "trace", "--help"]);
  assert.equal(help.code, 0);
  assert.match(help.stdout, /experimental/);
  for (const shell of ["bash", "zsh", "fish"]) {
    const { code, stdout } = await gwctl(["completion", shell]);
    assert.equal(code, 0);
    assert.match(stdout, /gwctl/);
    assert.match(stdout, /explain/);
  }
});

const misplaced: [args: string[], meant: string][] = [
  [["trace"], "`gwctl proxy trace`"],
  [["-p", "21510", "trace"], "`gwctl proxy trace`"],
  [["--local", "--admin-port", "21510", "memory"], "`gwctl proxy memory`"],
  [["list"], "`gwctl keys list` or `gwctl gateway list`"],
  [["get", "routes"], "`gwctl routes`"],
  [["-p", "21510", "describe", "limits"], "`gwctl limits`"],
];
for (const [args, meant] of misplaced) {
  test(`gwctl ${args.join(" ")} names the whole command`, async () => {
    const { code, stderr } = await gwctl(args);
    assert.equal(code, 2);
    assert.ok(stderr.includes(`use ${meant}`), stderr);
  });
}

test("unknown commands are answered with the commands to choose from, and the help of that level", async () => {
  const { code, stderr } = await gwctl(["mcp", "restart"]);
  assert.equal(code, 2);
  assert.match(stderr, /unknown command 'restart'\nCommands of gwctl mcp: servers, tools, lock, connections, help\n/);
  assert.match(stderr, /\(see gwctl mcp --help\)\n$/);
  assert.match((await gwctl(["stauts"])).stderr, /Did you mean status\?\)\n\(see gwctl --help\)\n$/);
  assert.match((await gwctl(["requests", "--limit", "0"])).stderr, /\(see gwctl requests --help\)\n$/);
});

test("help lists the connection options once, and for a command its own options first", async () => {
  const all = (await gwctl(["--help"])).stdout;
  assert.match(all, /Connection options, of every command:\n {2}--local/);
  assert.match(all, /What happens now:\n {2}status [\s\S]*Configuration:\n {2}routes /);
  const one = (await gwctl(["requests", "--help"])).stdout;
  assert.match(one, /Options:\n {2}--failed/);
  assert.doesNotMatch(one, /--kubeconfig/);
  assert.match(one, /gwctl --help/);
});

test("URLs without a scheme are rejected with the URL to write", async () => {
  for (const args of [
    ["what-if", "GET", "shop.test/p"],
    ["replay", "/dev/null", "--to", "shop.test/p"],
    ["-p", "1", "proxy", "trace", "--port", "3000", "--", "shop.test/p"],
  ]) {
    const { code, stderr } = await gwctl(args);
    assert.equal(code, 2, stderr);
    assert.match(
      stderr,
      /must begin with http:\/\/ or https:\/\/, for example http:\/\/shop\.test\/p: found shop\.test\/p/,
    );
  }
});

test("every command works on a terminal of any width", async () => {
  for (const columns of [0, 1, 5, 19, 20, 40])
    for (const args of [["--help"], ["requests", "--help"], ["proxy", "trace", "--help"], ["status"], ["routes"]]) {
      const { code, stdout, stderr } = await local(args, { columns });
      assert.equal(code, 0, stderr);
      assert.notEqual(stdout, "");
    }
});

test("the gateway's 400 is wrong usage, as an argument that gwctl rejects", async () => {
  assert.equal((await local(["cel", "jwt."])).code, 2);
  assert.equal((await local(["cel", "1 == 2", "--exit-code"])).code, 1);
  assert.equal((await local(["explain", "none"])).code, 1);
});

test("routes shows hosts, shares of weights, and canaries", async () => {
  const routes = [
    {
      name: "shop",
      backends: [
        { name: "a", weight: 9 },
        { name: "b", weight: 1 },
        { name: "c", weight: 0 },
        { name: "d", weight: 0 },
        { name: "e", weight: 0 },
      ],
    },
    { name: "tools", backends: [{ name: "m", weight: 1 }] },
  ];
  const backends = [
    { name: "a", type: "static", protocol: "http", host: "a.test:80" },
    { name: "b", type: "static", protocol: "http", host: "b.test:80" },
    { name: "c", type: "static", protocol: "http", host: "c.test:80", canary: { share: 10 } },
    { name: "d", type: "static", protocol: "http", host: "d.test:80", canary: { when: "true" } },
    { name: "m", type: "mcp", protocol: "mcp", targets: [{ name: "files" }, { name: "github" }] },
  ];
  const { stdout } = await gwctl(["routes", "--file", "-"], { input: JSON.stringify({ routes, backends }) });
  assert.match(
    stdout,
    /shop .* a\.test:80 \(90%\), b\.test:80 \(10%\), c\.test:80 \(canary, 10%\), d\.test:80 \(canary, true\), e \(0%\)\n/,
  );
  assert.match(stdout, /tools .* files \+ github\n/);
});

test("requests are filtered by time, route, status, key, and model, over all that the gateway keeps", async () => {
  const base = `http://127.0.0.1:${gateway.port()}`;
  for (const path of ["/echo/1", "/down/1", "/none"]) await (await fetch(`${base}${path}`)).arrayBuffer();
  const paths = async (...filter: string[]): Promise<string[]> => {
    const { stdout } = await local(["requests", "--since", "1h", ...filter, "-o", "json"]);
    return (JSON.parse(stdout) as { path: string }[]).map(({ path }) => path);
  };
  assert.deepEqual([...new Set(await paths("--route", "echo"))], ["/echo/1"]);
  assert.deepEqual([...new Set(await paths("--status", "502"))], ["/down/1"]);
  assert.deepEqual([...new Set(await paths("--status", "5XX"))], ["/down/1"]);
  assert.deepEqual([...new Set(await paths("--status", "404", "--failed"))], ["/none"]);
  for (const none of [
    ["--key", "nobody"],
    ["--model", "none"],
    ["--tool", "none"],
  ])
    assert.deepEqual(await paths(...none), []);
  assert.equal((await paths("--limit", "2")).length, 2);
  assert.equal((await local(["requests", "--since", "yesterday"])).code, 2);
  assert.equal((await local(["requests", "--status", "6xx"])).code, 2);
});

const misuse = [
  ["nonsense"],
  ["proxy", "trace", "--port", "3000"],
  ["proxy", "trace", "--", "http://a.test"],
  ["proxy", "trace", "--port", "99999", "--", "http://a.test"],
  ["proxy", "trace", "--port", "3000", "--", "ftp://a.test"],
  ["proxy", "trace", "--port", "3000", "--", "http://a.test", "-x", "http://proxy"],
  ["proxy", "trace", "--count", "0"],
  ["proxy", "trace", "gateway/x", "--local"],
  ["proxy", "trace", "--file", "x", "--local"],
  ["proxy", "profile", "cpu", "--seconds", "301"],
  ["proxy", "profile", "cpu", "--frequency", "100"],
  ["proxy", "config", "all", "-o", "xml"],
  ["proxy", "log", "--level", "info", "--set", "mcp=trace"],
  ["requests", "--limit", "0"],
  ["requests", "-o", "csv"],
  ["status", "-o", "table"],
  ["limits", "-o", "xml"],
  ["version", "--", "x"],
  ["completion", "tcsh"],
  ["explain"],
];
for (const args of misuse) {
  test(`gwctl ${args.join(" ")} is wrong usage: exit code 2 and a line that says so [S4.4-8]`, async () => {
    const { code, stdout, stderr } = await gwctl(args);
    assert.equal(code, 2, stderr);
    assert.equal(stdout, "");
    assert.doesNotMatch(stderr, /\n\s+at /);
  });
}

test("a gateway that does not run is one line with what to do, and exit code 1 [S4.4-9]", async () => {
  const { code, stderr } = await gwctl(["requests", "-p", "1"]);
  assert.equal(code, 1);
  assert.match(stderr, /^gwctl: no gateway answers at 127\.0\.0\.1:1: is it running\?[^\n]*-p <port>[^\n]*\n$/);
  const socket = await gwctl(["requests", "--admin-socket", join(folder, "none.sock")]);
  assert.equal(socket.code, 1);
  assert.match(socket.stderr, /no gateway answers at unix:/);
});

test("config all renders a running gateway and a saved dump, as YAML and JSON, without secrets [G4] [S4.4-5]", async () => {
  const fromGateway = await local(["proxy", "config", "all", "-o", "yaml"]);
  const dump = parse(fromGateway.stdout) as { routes: { name: string }[] };
  assert.deepEqual(
    dump.routes.map(({ name }) => name),
    ["echo", "down"],
  );
  assert.doesNotMatch(fromGateway.stdout, /s3cret-key/);
  const file = join(folder, "dump.json");
  writeFileSync(file, JSON.stringify({ a: "yes", b: "!!js/function x", c: "no: \u001b[31m", d: [1, null] }));
  const fromFile = await gwctl(["proxy", "config", "all", "--file", file, "-o", "yaml"]);
  assert.deepEqual(parse(fromFile.stdout), { a: "yes", b: "!!js/function x", c: "no: \u001b[31m", d: [1, null] });
  assert.ok(!fromFile.stdout.includes("\u001b"));
  assert.match(fromFile.stdout, /^a: "yes"$/m);
  const json = await gwctl(["proxy", "config", "all", "--file", "-", "-o", "json"], { input: '{"a":1}' });
  assert.equal(json.stdout, '{\n  "a": 1\n}\n');
  const broken = await gwctl(["proxy", "config", "all", "--file", "-"], { input: "{" });
  assert.equal(broken.code, 1);
  assert.match(broken.stderr, /failed to read config dump file -: not JSON/);
});

test("config routes, listeners and backends are tables; policies shows where each stands", async () => {
  assert.match(
    (await local(["proxy", "config", "routes"])).stdout,
    /^echo +\* +\/echo\* +requestHeaderModifier +127\.0\.0\.1:\d+$/m,
  );
  assert.match((await local(["proxy", "config", "listeners"])).stdout, /^default +\d+ +HTTP +echo, down$/m);
  assert.match(
    (await local(["proxy", "config", "backends"])).stdout,
    /^down\/backend0 +static +http +127\.0\.0\.1:1$/m,
  );
  const policies = await local(["policies"]);
  assert.match(policies.stdout, /^requestHeaderModifier +route\/echo/m);
  assert.doesNotMatch(policies.stdout, /s3cret-key/);
});

test("log reads and sets the filter, as a whole and by module; a bad one changes nothing [S4.2-4]", async () => {
  assert.equal((await local(["proxy", "log"])).stdout, "current log level is info\n");
  assert.equal(
    (await local(["proxy", "log", "--level", "warn,mcp=trace"])).stdout,
    "current log level is warn,mcp=trace\n",
  );
  assert.equal(
    (await local(["proxy", "log", "--set", "admin=debug"])).stdout,
    "current log level is warn,admin=debug,mcp=trace\n",
  );
  const bad = await local(["proxy", "log", "--level", "loud"]);
  assert.equal(bad.code, 2);
  assert.match(bad.stderr, /"loud" is not a level/);
  assert.equal((await local(["proxy", "log"])).stdout, "current log level is warn,admin=debug,mcp=trace\n");
});

test("profiles are written to the file that was named, or to one with a timestamp [S4.4-7]", {
  skip: process.platform !== "linux",
}, async () => {
  const named = await local(["proxy", "profile", "cpu", "--seconds", "1", "-o", "mine.pb.gz"], { cwd: folder });
  assert.equal(named.code, 0, named.stderr);
  assert.match(named.stdout, /^Wrote cpu profile to mine\.pb\.gz\n$/);
  assert.deepEqual([...readFileSync(join(folder, "mine.pb.gz")).subarray(0, 2)], [0x1f, 0x8b]);
  const unnamed = await local(["proxy", "profile", "heap"], { cwd: folder });
  assert.equal(unnamed.code, 0, unnamed.stderr);
  assert.ok(readdirSync(folder).some((name) => /^gwctl-heap-\d{8}-\d{6}\.pb\.gz$/.test(name)));
});

test("a CPU profile takes 30 seconds by default, and fails where the gateway has none [S4.4-6] [S8-19]", async () => {
  const asked: string[] = [];
  const elsewhere = createServer((req, res) => {
    asked.push(req.url ?? "");
    res.writeHead(404).end("not found");
  });
  await new Promise<void>((resolve) => elsewhere.listen(0, "127.0.0.1", resolve));
  const { code, stderr } = await gwctl(
    ["proxy", "profile", "cpu", "--local", "-p", String((elsewhere.address() as AddressInfo).port), "-o", "none.pb.gz"],
    { cwd: folder },
  );
  elsewhere.close();
  assert.equal(code, 1);
  assert.match(stderr, /404|Linux/);
  assert.ok(asked.includes("/debug/pprof/profile?seconds=30"), asked.join());
});

for (const place of ["/nonexistent/folder/x.pb.gz", "/"]) {
  test(`a profile that could not be written to ${place} is not taken`, async () => {
    const { code, stdout, stderr } = await local(["proxy", "profile", "cpu", "-o", place]);
    assert.equal(code, 1);
    assert.equal(stdout, "");
    assert.match(stderr, /^gwctl: cannot write [^\n]*\n$/);
  });
}

test("memory and tasks are tables, and JSON with -o json, as limits are", async () => {
  assert.match((await local(["proxy", "memory"])).stdout, /^MEMORY +USED +OF\nprocess \(resident\) +[\d.]+ MiB/);
  assert.match((await local(["proxy", "tasks"])).stdout, /^process \d+, up [\s\S]*\nlistener +default /);
  assert.match((await local(["proxy", "limits"])).stderr, /^no rate limits\n$/);
  for (const what of ["memory", "tasks", "limits"])
    assert.equal(typeof JSON.parse((await local(["proxy", what, "-o", "json"])).stdout), "object");
});

test("cel tries an expression on a recent request", async () => {
  await fetch(`${gateway.url()}/echo/cel`, { headers: { "x-request-id": "cel-1" } }).then((response) =>
    response.text(),
  );
  const { stdout } = await local([
    "cel",
    'request.path == "/echo/cel" && request.method == "POST"',
    "--request",
    "cel-1",
  ]);
  assert.match(stdout, /^false\n/);
  assert.match(stdout, /request\.method => "GET"/);
});

test("the admin interface on a unix socket is reached with --admin-socket", async () => {
  const socket = join(folder, "admin.sock");
  const other = await startGateway(`
config: { adminAddr: "unix:${socket}" }
gateways: { default: { port: 0 } }
routes: [{ name: only, policies: { directResponse: { status: 200 } } }]
`);
  const { code, stdout } = await gwctl(["proxy", "config", "routes", "--admin-socket", socket]);
  await other.close();
  assert.equal(code, 0);
  assert.match(stdout, /^only /m);
});
