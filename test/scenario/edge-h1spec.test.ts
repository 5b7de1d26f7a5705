/**
 * The cases of h1spec, a published conformance suite of HTTP/1.1 servers, written here: requests that arrive in
 * fragments are waited for and then served, wrong ones are refused, valid ones are answered.
 */
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { startGateway, type TestGateway } from "../support/gateway.ts";
import { openRawClient, rawRequest } from "../support/raw-client.ts";

let gateway: TestGateway;
before(async () => {
  gateway = await startGateway(`
gateways: { default: { port: 0 } }
routes: [{ policies: { directResponse: { body: hello } } }]
`);
});
after(() => gateway.close());

const WHOLE = "GET /hello?a=b HTTP/1.1\r\nHost: example.com\r\nX-Field: a value\r\nConnection: close\r\n\r\n";

/** What has arrived when the client pauses. */
const fragments: [name: string, until: string][] = [
  ["method", "GE"],
  ["method without its space", "GET"],
  ["space after the method", "GET "],
  ["target", "GET /hel"],
  ["query", "GET /hello?a"],
  ["space after the target", "GET /hello?a=b "],
  ["HTTP version", "GET /hello?a=b HT"],
  ["version number", "GET /hello?a=b HTTP/1."],
  ["request line", "GET /hello?a=b HTTP/1.1"],
  ["line break, first half", "GET /hello?a=b HTTP/1.1\r"],
  ["line break", "GET /hello?a=b HTTP/1.1\r\n"],
  ["field name", "GET /hello?a=b HTTP/1.1\r\nHo"],
  ["colon", "GET /hello?a=b HTTP/1.1\r\nHost:"],
  ["space after the colon", "GET /hello?a=b HTTP/1.1\r\nHost: "],
  ["field value", "GET /hello?a=b HTTP/1.1\r\nHost: exam"],
  ["end of a field, first half", "GET /hello?a=b HTTP/1.1\r\nHost: example.com\r"],
  ["end of a field", "GET /hello?a=b HTTP/1.1\r\nHost: example.com\r\n"],
  ["second field", "GET /hello?a=b HTTP/1.1\r\nHost: example.com\r\nX-Field: a v"],
  ["end of the head, first half", WHOLE.slice(0, -1)],
];
for (const [name, until] of fragments) {
  test(`waits for the rest of a request that stops after its ${name}`, async () => {
    assert.ok(WHOLE.startsWith(until));
    const client = openRawClient(gateway.port());
    client.socket.setNoDelay(true);
    client.write(until);
    // The other connection's answer comes after whatever would have been said to the fragment.
    assert.equal((await rawRequest(gateway.port(), WHOLE)).status, 200);
    assert.equal(client.received(), "");
    client.write(WHOLE.slice(until.length));
    assert.equal((await client.ended()).status, 200);
  });
}

const REFUSED: readonly number[] = [400, 417, 431, 501, 505];
const cases: [name: string, bytes: string, statuses: readonly number[]][] = [
  ["a valid GET", WHOLE, [200]],
  [
    "a GET with odd but valid fields",
    "GET / HTTP/1.1\r\nhoSt:\texample.com\r\nempty:\r\nConnection: close\r\n\r\n",
    [200],
  ],
  ["an empty field value", "GET / HTTP/1.1\r\nHost: example.com\r\nX-Empty: \r\nConnection: close\r\n\r\n", [200]],
  ["a POST with a body", "POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 5\r\n\r\nhello", [200]],
  [
    "a chunked POST",
    "POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\nc\r\nHello world1\r\n0\r\n\r\n",
    [200],
  ],
  [
    "an expectation",
    "POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\nhello",
    [200],
  ],
  ["no HTTP version", "GET / \r\n\r\n", REFUSED],
  ["no HTTP version and no space", "GET /\r\n\r\n", REFUSED],
  ["no Host", "GET / HTTP/1.1\r\n\r\n", [400]],
  ["two Hosts", "GET / HTTP/1.1\r\nHost: example.com\r\nHost: example.org\r\n\r\n", [400]],
  ["invalid characters in a name", "GET / HTTP/1.1\r\nHost: a\r\nX-Inv@lid[]: x\r\n\r\n", [400]],
  ["a control character in a value", "GET / HTTP/1.1\r\nHost: a\r\nX: a\x07b\r\n\r\n", [400]],
  ["a negative length", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n", [400]],
  [
    "a negative length that overflows",
    "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: -123456789123456789123456789\r\n\r\n",
    [400],
  ],
  ["a length that is no number", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: abc\r\n\r\n", [400]],
  ["an invalid HTTP version", "GET / HTTP/9.9\r\nHost: a\r\n\r\n", [400, 505]],
  ["a prefix before the request", "Extra lineGET / HTTP/1.1\r\nHost: a\r\n\r\n", [400]],
  ["invalid line ends", "GET / HTTP/1.1\r\nHost: a\r\n\rSome-Header: x\r\n\r\n", [400]],
  [
    "a length and a coding",
    "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    [400],
  ],
];
for (const [name, bytes, statuses] of cases) {
  test(`${statuses[0] === 200 ? "answers" : "refuses"} ${name}`, async () => {
    const answer = await rawRequest(gateway.port(), Buffer.from(bytes, "latin1"));
    assert.ok(statuses.includes(answer.status), answer.text);
    assert.equal(answer.statuses.length, 1);
  });
}
