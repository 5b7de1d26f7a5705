import assert from "node:assert/strict";
import { test } from "node:test";
import { curlCommand, parseCurlArguments } from "./curl-arguments.ts";

const URL_TEXT = "http://example.test/mcp";

const taken = [
  { name: "a URL alone", given: [URL_TEXT], args: [] },
  {
    name: "method, header and body",
    given: [URL_TEXT, "-X", "POST", "-H", "a: b", "-d", "{}"],
    args: ["-X", "POST", "-H", "a: b", "-d", "{}"],
  },
  {
    name: "options before the URL",
    given: ["-d", "http://not.a.url.here", URL_TEXT],
    args: ["-d", "http://not.a.url.here"],
  },
  { name: "attached values and joined flags", given: ["-sSXPOST", URL_TEXT, "-Ha: b"], args: ["-sSXPOST", "-Ha: b"] },
  { name: "a joined flag whose value follows", given: ["-sX", "POST", URL_TEXT], args: ["-sX", "POST"] },
  {
    name: "long options",
    given: [URL_TEXT, "--json", '{"a":1}', "--compressed"],
    args: ["--json", '{"a":1}', "--compressed"],
  },
  { name: "a value that looks like an option", given: [URL_TEXT, "-d", "-x"], args: ["-d", "-x"] },
];
for (const { name, given, args } of taken) {
  test(`curl arguments: ${name}`, () => {
    const parsed = parseCurlArguments(given);
    assert.equal(parsed.url, URL_TEXT);
    assert.deepEqual(parsed.args, args);
  });
}

const rejected = [
  { name: "a proxy", given: [URL_TEXT, "-x", "http://proxy"] },
  { name: "a proxy hidden among flags", given: [URL_TEXT, "-sx", "http://proxy"] },
  { name: "an output file", given: [URL_TEXT, "-o", "x"] },
  { name: "a configuration file", given: [URL_TEXT, "-K", "f"] },
  { name: "a configuration file where a URL is expected", given: ["-Kfoo"] },
  { name: "a second request", given: [URL_TEXT, "--next", URL_TEXT] },
  { name: "redirects", given: [URL_TEXT, "-L"] },
  { name: "a unix socket", given: [URL_TEXT, "--unix-socket", "/s"] },
  { name: "another destination", given: [URL_TEXT, "--connect-to", "::evil:1"] },
  { name: "another name resolution", given: [URL_TEXT, "--resolve", "a:1:2.3.4.5"] },
  { name: "an abbreviated option", given: [URL_TEXT, "--prox", "p"] },
  { name: "a URL as an option", given: ["--url", URL_TEXT] },
  { name: "no URL", given: ["-X", "POST"] },
  { name: "two URLs", given: [URL_TEXT, URL_TEXT] },
  { name: "another scheme", given: ["file:///etc/passwd"] },
  { name: "no scheme", given: ["example.test/mcp"] },
  { name: "a missing value", given: [URL_TEXT, "-H"] },
];
for (const { name, given } of rejected) {
  test(`curl arguments are rejected: ${name} [G1]`, () => {
    assert.throws(() => parseCurlArguments(given), { name: "CliError", exitCode: 2 });
  });
}

test("a request id that the user gives is used to find the request", () => {
  assert.equal(parseCurlArguments([URL_TEXT, "-H", "X-Request-Id: mine"]).requestId, "mine");
  assert.equal(parseCurlArguments([URL_TEXT, "-HX-Request-Id: mine"]).requestId, "mine");
  assert.equal(parseCurlArguments([URL_TEXT]).requestId, undefined);
});

test("the command line goes to loopback, reads no configuration and uses no proxy [G2]", () => {
  const command = curlCommand({
    url: URL_TEXT,
    args: ["-X", "POST"],
    port: 3000,
    scheme: "http",
    requestId: "id1",
    hasRequestId: false,
  });
  assert.equal(command[0], "--disable");
  assert.deepEqual(command.slice(command.indexOf("--connect-to"), command.indexOf("--connect-to") + 2), [
    "--connect-to",
    "::127.0.0.1:3000",
  ]);
  assert.deepEqual(command.slice(command.indexOf("--noproxy"), command.indexOf("--noproxy") + 2), ["--noproxy", "*"]);
  assert.ok(command.includes("x-request-id: id1"));
  assert.deepEqual(command.slice(-4), ["-X", "POST", "--url", URL_TEXT]);
});

const addressed = [
  { url: "https://a.test/mcp", scheme: "http", sent: "http://a.test/mcp", host: undefined },
  { url: "http://a.test:8443/mcp", scheme: "https", sent: "https://a.test:8443/mcp", host: undefined },
  { url: "https://a.test:443/mcp", scheme: "http", sent: "http://a.test:443/mcp", host: undefined },
  { url: "http://a.test:80", scheme: "http", sent: "http://a.test:80", host: "a.test:80" },
  { url: "HTTPS://[::1]:443/?a=:80", scheme: "https", sent: "https://[::1]:443/?a=:80", host: "[::1]:443" },
  { url: "https://a.test/mcp", scheme: undefined, sent: "https://a.test/mcp", host: undefined },
] as const;
for (const { url, scheme, sent, host } of addressed) {
  test(`${url} is requested as ${sent} from a listener with ${scheme ?? "an unknown scheme"}`, () => {
    const command = curlCommand({ url, args: [], port: 3000, scheme, requestId: "id1", hasRequestId: true });
    assert.equal(command.at(-1), sent);
    assert.equal(
      command.find((word) => word.startsWith("Host: ")),
      host && `Host: ${host}`,
    );
  });
}

test("a Host header from the user is the only one", () => {
  const call = { url: "http://a.test:80/", port: 3000, scheme: "http", requestId: "id1", hasRequestId: true } as const;
  for (const args of [["-H", "Host: b.test"], ["-HHost:"], ["--header", "host;"]])
    assert.ok(!curlCommand({ ...call, args }).includes("Host: a.test:80"), args.join(" "));
});
