/**
 * MCP servers that accept only requests with an AWS signature: every request of a session is signed as it is sent, also
 * those that open streams and end sessions.
 */
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { type TestContext, test } from "node:test";
import { expectedSignature, type ReceivedRequest } from "../support/aws-signature.ts";
import { eventually } from "../support/eventually.ts";
import { rawClient } from "../support/mcp/client.ts";
import { startRemote } from "../support/mcp/http-server.ts";
import { gatewayFor } from "../support/scenario.ts";

const SECRET = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY";
const KEYS = `accessKeyId: AKIDEXAMPLE, secretAccessKey: "${SECRET}", sessionToken: session`;
const AWS = `aws: { region: us-east-1, service: bedrock-agentcore, ${KEYS} }`;
const HOUR_MS = 3_600_000;

async function session(t: TestContext, kind: "mcp" | "sse", url: string) {
  const gateway = await gatewayFor(
    t,
    `mcp: { port: 0, targets: [{ name: agent, ${kind}: { url: "${url}", ${AWS} } }] }`,
  );
  const client = rawClient(`${gateway.url()}/mcp`);
  return { gateway, client };
}

function isSigned(request: ReceivedRequest): boolean {
  const { authorization = "" } = request.headers;
  return /Signature=(\w+)/.exec(authorization)?.[1] === expectedSignature(request, SECRET, "bedrock-agentcore");
}

test("every request to a streamable HTTP server is signed as it is sent", async (t) => {
  const remote = await startRemote("http");
  t.after(() => remote.close());
  const { client } = await session(t, "mcp", `${remote.url}?qualifier=a?b%2Fc&qualifier=`);
  await client.initialize();
  assert.equal((await client.call("echo", { message: "é" })).result.content[0].text, "é");
  await eventually("the stream is open", () => remote.received.some(({ method }) => method === "GET"));
  await client.delete();
  await eventually("the session is over", () => remote.sessions.size === 0);
  assert.deepEqual([...new Set(remote.received.map(({ method }) => method))].sort(), ["DELETE", "GET", "POST"]);
  for (const request of remote.received) {
    assert.ok(isSigned(request), `${request.method} ${request.url} ${JSON.stringify(request.headers)}`);
    assert.equal(request.headers["x-amz-security-token"], "session");
  }
});

test("both requests of the HTTP+SSE transport are signed", async (t) => {
  const remote = await startRemote("sse");
  t.after(() => remote.close());
  const { client } = await session(t, "sse", remote.url);
  await client.initialize();
  assert.equal((await client.call("echo", { message: "a" })).result.content[0].text, "a");
  assert.ok(remote.received.every(isSigned));
  assert.deepEqual([...new Set(remote.received.map(({ method }) => method))].sort(), ["GET", "POST"]);
});

test("a request that the server rejects because of its date is sent again with the server's time", async (t) => {
  let refused = 0;
  const remote = await startRemote("http", {
    refuses(req, res) {
      const text = String(req.headers["x-amz-date"]);
      const date = text.replace(/^(....)(..)(..)T(..)(..)(..)Z$/, "$1-$2-$3T$4:$5:$6Z");
      const serverMs = Date.now() + HOUR_MS;
      if (Math.abs(Date.parse(date) - serverMs) < 300_000) return false;
      refused += 1;
      res.writeHead(403, { date: new Date(serverMs).toUTCString() }).end("Signature expired");
      return true;
    },
  });
  t.after(() => remote.close());
  const { client } = await session(t, "mcp", remote.url);
  await client.initialize();
  assert.equal((await client.call("echo", { message: "a" })).result.content[0].text, "a");
  assert.equal(refused, 1);
  assert.ok(remote.received.every(isSigned));
});

test("a server that rejects every signature is called at most twice per message", async (t) => {
  let refused = 0;
  const remote = await startRemote("http", {
    refuses(_req, res) {
      refused += 1;
      res.writeHead(403, { date: new Date(Date.now() + refused * HOUR_MS).toUTCString() }).end("no");
      return true;
    },
  });
  t.after(() => remote.close());
  const { client } = await session(t, "mcp", remote.url);
  const answer = await client.initialize();
  assert.match(answer.text, /status 403/);
  assert.ok(refused <= 4, `${refused} requests for the two messages that start a session`);
});

test("without credentials, the server is not called", async (t) => {
  const remote = await startRemote("http");
  t.after(() => remote.close());
  const aws = "aws: { region: us-east-1, service: bedrock-agentcore }";
  const gateway = await gatewayFor(
    t,
    `mcp: { port: 0, targets: [{ name: agent, mcp: { url: "${remote.url}", ${aws} } }] }`,
    { environment: { AWS_EC2_METADATA_DISABLED: "true", HOME: "/nonexistent" } },
  );
  const answer = await rawClient(`${gateway.url()}/mcp`).initialize();
  assert.match(answer.text, /could not be called/);
  assert.equal(remote.received.length, 0);
});

/** Reads requests as JSON lines and prints the signature of each. */
const BOTOCORE = `
import sys, json
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
for line in sys.stdin:
    r = json.loads(line)
    names = r["names"]
    request = AWSRequest(method=r["method"], url=r["url"], data=r["body"].encode(), headers={n: r["headers"][n] for n in names if n != "host"})
    request.headers["Host"] = r["headers"]["host"]
    request.context["timestamp"] = r["headers"]["x-amz-date"]
    auth = SigV4Auth(Credentials("AKIDEXAMPLE", "${SECRET}", "session"), "bedrock-agentcore", "us-east-1")
    canonical = auth.canonical_request(request)
    print(auth.signature(auth.string_to_sign(request, canonical), request))
`;
const python = process.env.BOTOCORE_PYTHON ?? "python3";
const hasBotocore = spawnSync(python, ["-c", "import botocore"]).status === 0;

test("botocore computes the same signatures", {
  skip: hasBotocore ? false : "set BOTOCORE_PYTHON to a Python with botocore",
}, async (t) => {
  const remote = await startRemote("http");
  t.after(() => remote.close());
  const { client } = await session(t, "mcp", `${remote.url}/a%20b/c:d?qualifier=DEFAULT&a=1`);
  await client.initialize();
  await client.call("echo", { message: "é" });
  await eventually("the stream is open", () => remote.received.some(({ method }) => method === "GET"));
  await client.delete();
  await eventually("the session is over", () => remote.sessions.size === 0);
  const input = remote.received.map(({ method, url, headers, body }) => {
    const names = /SignedHeaders=([^,]+)/.exec(headers.authorization ?? "")?.[1]?.split(";");
    return JSON.stringify({ method, url: `http://${headers.host}${url}`, headers, body, names });
  });
  const { stdout, stderr } = spawnSync(python, ["-c", BOTOCORE], { input: input.join("\n"), encoding: "utf8" });
  const sent = remote.received.map(({ headers }) => /Signature=(\w+)/.exec(headers.authorization ?? "")?.[1]);
  assert.deepEqual(stdout.trim().split("\n"), sent, stderr);
});
