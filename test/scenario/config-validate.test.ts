/**
 * `gateway --validate-only` with its flags, as it runs in a pipeline: strict, for machines, and without the secrets.
 */
import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import { type Exit, startGatewayProcess } from "../support/gateway-process.ts";

const validate = (t: TestContext, stdin: string, flags: readonly string[] = []): Promise<Exit> =>
  startGatewayProcess(t, ["--validate-only", ...flags, "-f", "-"], { stdin }).exited;

const OPEN = "mcp: { port: 3000, targets: [{ name: a, stdio: { cmd: cat } }] }\n";
const SECRETS = `gateways: { default: { port: \${PORT}, protocol: HTTPS, tls: { cert: "\${CERT}", key: "\${KEY}" } } }
routes:
  - backends: [{ host: "\${UPSTREAM}" }]
    policies:
      timeout: { requestTimeout: \${TIMEOUT} }
      jwtAuth: { mode: \${MODE}, issuer: "\${ISSUER}", audiences: ["\${AUDIENCE}"], jwks: "\${JWKS}" }
      authorization: { rules: ['jwt.sub == "\${SUBJECT}"'] }
`;

test("an open port is a warning with the address as it is bound; --strict makes it a failure", async (t) => {
  const warned = await validate(t, OPEN);
  assert.deepEqual([warned.code, warned.stdout], [0, "configuration is valid\n"]);
  assert.match(
    warned.stderr,
    /^warning: <stdin>:1:14: mcp\.port: other machines can reach 0\.0\.0\.0:3000, and route "mcp" asks/,
  );
  const strict = await validate(t, OPEN, ["--strict"]);
  assert.deepEqual([strict.code, strict.stdout], [1, ""]);
  assert.equal((await validate(t, OPEN.replace("3000", "3000, address: 127.0.0.1"), ["--strict"])).code, 0);
});

test("an empty file is a warning with its name", async (t) => {
  const exit = await validate(t, "# nothing yet\n", ["--strict", "--format", "github"]);
  assert.equal(exit.code, 1);
  assert.equal(exit.stdout, "::warning file=<stdin>,line=1,col=1::the configuration is empty, so nothing is served\n");
});

test("without the secrets everything else is checked, and what was not is noted", async (t) => {
  const refused = await validate(t, SECRETS);
  assert.equal(refused.code, 1);
  assert.match(refused.stderr, /environment variable not found: PORT/);
  const exit = await validate(t, SECRETS, ["--allow-missing-env", "--strict", "--format", "json"]);
  const report = JSON.parse(exit.stdout) as { valid: boolean; findings: { severity: string; message: string }[] };
  assert.deepEqual([exit.code, report.valid], [0, true], exit.stdout);
  assert.deepEqual(
    report.findings.map(({ severity, message }) => `${severity} ${message}`),
    ["PORT", "CERT", "KEY", "UPSTREAM", "TIMEOUT", "MODE", "ISSUER", "AUDIENCE", "JWKS", "SUBJECT"].map(
      (name) => `note not checked: environment variable ${name} not set`,
    ),
  );
  const wrong = await validate(t, SECRETS.replace("timeout:", "timout:"), ["--allow-missing-env"]);
  assert.equal(wrong.code, 1);
  assert.match(wrong.stderr, /routes\[0\]\.policies\.timout: unknown field, did you mean "timeout"\?/);
});

for (const flags of [["--strict"], ["--format", "json"], ["--allow-missing-env"]]) {
  test(`${flags[0]} without --validate-only is a wrong use`, async (t) => {
    const exit = await startGatewayProcess(t, [...flags, "-f", "-"], { stdin: OPEN }).exited;
    assert.equal(exit.code, 2);
    assert.match(exit.stderr, new RegExp(`^${flags[0]} can only be used with --validate-only or --test\n`));
  });
}

test("a format that nobody knows is a wrong use", async (t) => {
  assert.equal((await validate(t, OPEN, ["--format", "xml"])).code, 2);
});
