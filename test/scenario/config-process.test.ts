/**
 * The binary's flags, exit codes and messages (spec 2.1).
 */
import assert from "node:assert/strict";
import { once } from "node:events";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { type AddressInfo, createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { type Exit, type ProcessOptions, startGatewayProcess } from "../support/gateway-process.ts";

const GOOD =
  "config: { adminAddr: off }\ngateways: { default: { port: 0 } }\nroutes: [{ policies: { directResponse: { body: hello } } }]\n";

function folder(t: TestContext, files: Record<string, string>): string {
  const path = mkdtempSync(join(tmpdir(), "gateway-test-"));
  t.after(() => rmSync(path, { recursive: true, force: true }));
  for (const [name, text] of Object.entries(files)) {
    mkdirSync(join(path, name, ".."), { recursive: true });
    writeFileSync(join(path, name), text);
  }
  return path;
}

const run = (t: TestContext, args: readonly string[], options: ProcessOptions = {}): Promise<Exit> =>
  startGatewayProcess(t, args, options).exited;

test("--version and --help answer and exit with 0", async (t) => {
  const version = await run(t, ["--version"]);
  assert.equal(version.code, 0);
  assert.match(version.stdout, /^gateway \d+\.\d+\.\d+\n$/);
  const help = await run(t, ["--help"]);
  assert.equal(help.code, 0);
  for (const flag of ["-f, --file", "--validate-only", "--version", "--help"])
    assert.ok(help.stdout.includes(flag), flag);
});

for (const args of [["--nope"], ["-f"], ["config.yaml"], ["--validate-only=yes"], ["-x"]]) {
  test(`${args.join(" ")} is a wrong use: exit 2, the help on standard error`, async (t) => {
    const exit = await run(t, args);
    assert.equal(exit.code, 2);
    assert.match(exit.stderr, /Usage: gateway/);
    assert.equal(exit.stdout, "");
  });
}

const hints: [args: string[], hint: string | undefined][] = [
  [["c.yaml"], "gateway -f c.yaml"],
  [["-c", "c.yaml"], "gateway -f c.yaml"],
  [["--config", "c.yaml"], "gateway -f c.yaml"],
  [["--config=c.yaml"], "gateway -f c.yaml"],
  [["--validate-only", "c.yaml"], "gateway -f c.yaml"],
  [["-c"], undefined],
  [["--nope"], undefined],
  [["-f", "c.yaml", "--nope"], undefined],
];
for (const [args, hint] of hints) {
  test(`${args.join(" ")} is ${hint === undefined ? "not taken for a file" : "told how a file is named"}`, async (t) => {
    const exit = await run(t, args);
    assert.equal(exit.code, 2);
    assert.equal(/^Did you mean: (.*)$/m.exec(exit.stderr)?.[1], hint);
  });
}

test("--validate-only prints warnings with their place on standard error, and the configuration is valid all the same", async (t) => {
  const at = folder(t, {
    "config.yaml":
      "llm: { address: 127.0.0.1, models: [{ name: m, provider: openAI, params: { model: m, apiKey: $PLANTED_KEY } }] }\n",
  });
  const exit = await run(t, ["--validate-only", "-f", join(at, "config.yaml")]);
  assert.deepEqual([exit.code, exit.stdout], [0, "configuration is valid\n"]);
  assert.equal(
    exit.stderr.replace(`${at}/`, ""),
    "warning: config.yaml:1:94: llm.models[0].params.apiKey: `$NAME` without braces is plain text: write `${NAME}` for the variable\n",
  );
});

test("files that are named and cannot be read are told in one form, and that ~ is not replaced", async (t) => {
  const at = folder(t, {
    "config.yaml": `gateways: { default: { port: 0, protocol: HTTPS, tls: { cert: ~/cert.pem, key: none.pem } } }
routes:
  - policies:
      jwtAuth: { issuer: "http://id", audiences: [a], jwks: ~/keys.json }
`,
  });
  const exit = await run(t, ["--validate-only", "-f", join(at, "config.yaml")]);
  const missing = "ENOENT (no such file or directory)";
  const home = "`~` is not expanded, use the full path or `${HOME}`";
  assert.deepEqual(exit.stderr.replaceAll(`${at}/`, "").trim().split("\n"), [
    `config.yaml:1:63: gateways.default.tls.cert: cannot read ~/cert.pem: ${missing}: ${home}`,
    `config.yaml:1:80: gateways.default.tls.key: cannot read none.pem: ${missing}`,
    `config.yaml:4:61: routes[0].policies.jwtAuth.jwks: cannot read ~/keys.json: ${missing}: ${home}`,
  ]);
  const named = await run(t, ["-f", "~/none.yaml"]);
  assert.equal(named.stderr, `cannot read ~/none.yaml: no such file or directory: ${home}\n`);
});

test("a port that is taken is told with its place and the name that the file has for it", async (t) => {
  const taken = createServer();
  await once(taken.listen(0), "listening");
  t.after(() => taken.close());
  const { port } = taken.address() as AddressInfo;
  const texts: [text: string, start: string][] = [
    [`mcp:\n  port: ${port}\n  targets: [{ name: a, stdio: { cmd: cat } }]\n`, "2:9: mcp.port"],
    [`gateways: { edge: { port: ${port} } }\n`, "1:27: gateways.edge.port"],
  ];
  for (const [text, start] of texts) {
    const at = folder(t, { "config.yaml": `${text}config: { adminAddr: off }\n` });
    const exit = await run(t, ["-f", join(at, "config.yaml")]);
    assert.equal(exit.code, 1);
    assert.ok(
      exit.stderr.startsWith(`${at}/config.yaml:${start}: cannot listen on *:${port}: the address is already in use`),
      exit.stderr,
    );
    const piped = await run(t, ["-f", "-"], { stdin: `${text}config: { adminAddr: off }\n` });
    assert.ok(piped.stderr.startsWith(`<stdin>:${start}: cannot listen`), piped.stderr);
  }
  const admin = await run(t, ["-f", "-"], { stdin: `config: { adminAddr: "127.0.0.1:${port}" }\n${GOOD.slice(27)}` });
  assert.match(admin.stderr, /^<stdin>:1:22: config\.adminAddr: cannot listen on 127\.0\.0\.1:\d+: the address is/);
});

test("--validate-only says that a good configuration is valid, and opens nothing", async (t) => {
  const at = folder(t, { "config.yaml": GOOD });
  const exit = await run(t, ["--validate-only", "-f", join(at, "config.yaml")]);
  assert.deepEqual([exit.code, exit.stdout, exit.stderr], [0, "configuration is valid\n", ""]);
});

test("all problems are said at once, each with its place and field, on standard error [C4]", async (t) => {
  const at = folder(t, {
    "config.yaml": `gateways:
  default:
    prt: 3000
    protocol: HTPP
routes:
  - name: a
    backend: []
    policies:
      cors: { allowOrigins: [] }
      timeout: { requestTimeout: soon }
  - name: a
    backends: [{ host: "no port" }, { weight: 1 }]
`,
  });
  for (const flags of [["--validate-only"], []]) {
    const exit = await run(t, [...flags, "-f", join(at, "config.yaml")]);
    assert.equal(exit.code, 1);
    assert.equal(exit.stdout, "");
    const lines = exit.stderr
      .trim()
      .split("\n")
      .map((line) => line.replace(`${at}/`, ""));
    assert.deepEqual(lines, [
      "config.yaml:3:5: gateways.default.port: required field is missing",
      'config.yaml:3:5: gateways.default.prt: unknown field, did you mean "port"?',
      'config.yaml:4:15: gateways.default.protocol: expected "HTTP" or "HTTPS" or "TCP" or "TLS", did you mean "HTTP"?',
      'config.yaml:7:5: routes[0].backend: unknown field, did you mean "backends"?',
      "config.yaml:9:29: routes[0].policies.cors.allowOrigins: must not be empty",
      "config.yaml:10:34: routes[0].policies.timeout.requestTimeout: expected a duration such as 250ms, 10s, 5m or 1h30m",
      "config.yaml:12:24: routes[1].backends[0].host: expected host:port, an http:// or https:// URL without a path, or unix:/path",
      "config.yaml:12:37: routes[1].backends[1]: one of `host`, `service`, `dynamic`, `mcp`, `mcpLogins`, `a2a`, `ai`, `ui` is required",
    ]);
  }
});

test("an unset variable stops the start: the message of the spec, the name and the place [C3] [S2.1-3] [S2.1-17]", async (t) => {
  const at = folder(t, {
    "config.yaml": `gateways:\n  default: { port: 0 }\n# \${COMMENTED_OUT} is not looked at\nroutes:\n  - name: \${MY_NAME}\n`,
  });
  const exit = await run(t, ["-f", join(at, "config.yaml")]);
  assert.equal(exit.code, 1);
  assert.equal(
    exit.stderr.replace(`${at}/`, ""),
    "config.yaml:5:11: routes[0].name: environment variable not found: MY_NAME. Set it, or write ${MY_NAME:-default}\n",
  );
  assert.equal((await run(t, ["--validate-only", "-f", join(at, "config.yaml")], { env: { MY_NAME: "x" } })).code, 0);
});

test("a configuration that serves nothing is warned about, and refused if it has not even an admin interface [S2.1-1]", async (t) => {
  const at = folder(t, {
    "some.yaml": "config: { adminAddr: 127.0.0.1:0 }\n",
    "none.yaml": "config: { adminAddr: off }\n",
  });
  await startGatewayProcess(t, ["-f", join(at, "some.yaml")]).logged("warn  config: no listeners");
  const exit = await run(t, ["-f", join(at, "none.yaml")]);
  assert.equal(exit.code, 1);
  assert.match(exit.stderr, /none\.yaml:1:22: config\.adminAddr: no listeners: .* and the admin interface is off\n$/);
});

test("an invalid name in sensitiveHeaders stops the start [C4] [S7-4] [S2.1-25]", async (t) => {
  const at = folder(t, { "config.yaml": 'config: { sensitiveHeaders: ["x good", "x-ok"] }\n' });
  const exit = await run(t, ["-f", join(at, "config.yaml")]);
  assert.equal(exit.code, 1);
  assert.match(exit.stderr, /config\.yaml:1:\d+: config\.sensitiveHeaders\[0\]: not a valid HTTP header name/);
});

test("a file that is not there, or not readable as one, is one line and exit 1", async (t) => {
  const at = folder(t, { "sub/inner.yaml/x": "x" });
  writeFileSync(join(at, "latin1.yaml"), Buffer.from("a: caf\xe9\n", "latin1"));
  const cases = [
    ["none.yaml", "cannot read none.yaml: no such file or directory\n"],
    ["sub", "cannot read sub/inner.yaml: it is a directory\n"],
    ["latin1.yaml", "cannot read latin1.yaml: it is not UTF-8 text\n"],
  ] as const;
  for (const [name, message] of cases) {
    const exit = await run(t, ["-f", join(at, name)]);
    assert.deepEqual([exit.code, exit.stderr.replace(`${at}/`, "")], [1, message]);
  }
});

test("a directory, standard input and several files make one configuration [C1]", async (t) => {
  const at = folder(t, {
    "conf/a.yaml":
      "# the resources are in the other file\ngateways: { default: { port: 0 } }\nroutes: [{ name: from-a, policies: { directResponse: { status: 200 } } }]\n",
    "conf/ignored.txt": "not: [yaml",
    "conf/.hidden.yaml": "not: [yaml",
  });
  const ok = async (args: string[], options: ProcessOptions = {}): Promise<void> => {
    const exit = await run(t, ["--validate-only", ...args], options);
    assert.deepEqual([exit.code, exit.stderr], [0, ""], args.join(" "));
  };
  await ok(["-f", join(at, "conf")]);
  await ok(["-f", "-"], { stdin: GOOD });
  await ok(["-f", join(at, "conf"), "-f", "-"], { stdin: "" });
  const twice = await run(t, ["--validate-only", "-f", join(at, "conf"), "-f", "-"], { stdin: GOOD });
  assert.equal(twice.code, 1);
  assert.match(twice.stderr, /<stdin>:1:1: a second standalone configuration: the first is in .*a\.yaml/);
});

test("hostile files are refused within a second, by name [C1] [V23]", async (t) => {
  const laughs = `a: &a [${"x,".repeat(9)}]\n${[..."bcdefghij"].map((c, i) => `${c}: &${c} [${Array(9).fill(`*${"abcdefghij"[i]}`).join(",")}]`).join("\n")}`;
  const at = folder(t, {
    "laughs.yaml": laughs,
    "merge.yaml": `a: &a {x: 1}\nb:\n  <<: [${Array(4000).fill("*a").join(",")}]\n`,
    "deep.yaml": `a: ${"[".repeat(100_000)}`,
    "big.yaml": `a: ${"x".repeat(8 * 1024 * 1024)}`,
  });
  for (const [name, message] of [
    ["laughs", /aliases/],
    ["merge", /more than 100 aliases/],
    ["deep", /nested deeper than 64 levels/],
    ["big", /larger than 8 MiB/],
  ] as const) {
    const exit = await run(t, ["--validate-only", "-f", join(at, `${name}.yaml`)]);
    assert.equal(exit.code, 1, name);
    assert.match(exit.stderr, message);
    assert.ok(exit.stderr.length < 1000, "one line");
  }
});
