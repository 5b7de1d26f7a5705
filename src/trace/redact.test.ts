import assert from "node:assert/strict";
import { test } from "node:test";
import { createRedaction, redactBody, redactQuery, shownUrl } from "./redact.ts";

test("sensitive headers are redacted by name, in any case, and others are not [S5-5] [S2.1-19]", () => {
  const redaction = createRedaction(["X-Tenant-Key"]);
  const shown = redaction.headers(["authorization", "Bearer a", "x-tenant-key", "b", "cookie", "c", "accept", "d"]);
  assert.deepEqual(
    { ...shown },
    { authorization: "<redacted>", "x-tenant-key": "<redacted>", cookie: "<redacted>", accept: "d" },
  );
  assert.equal(redaction.isSensitive("AUTHORIZATION"), true);
  assert.equal(redaction.isSensitive("accept"), false);
});

test("repeated headers become a list, each value redacted", () => {
  const shown = createRedaction().headers(["set-cookie", "a=1", "set-cookie", "b=2", "x-n", "1", "x-n", "2"]);
  assert.deepEqual({ ...shown }, { "set-cookie": ["<redacted>", "<redacted>"], "x-n": ["1", "2"] });
});

test("a text that quotes a credential is scrubbed of it, with and without its scheme", () => {
  const redaction = createRedaction();
  const pairs = ["authorization", "Bearer abc.def.ghi", "accept", "text/html"];
  assert.equal(
    redaction.scrub("got abc.def.ghi in Bearer abc.def.ghi for text/html", pairs),
    "got <redacted> in <redacted> for text/html",
  );
});

test("short values are left alone: they are words, not secrets", () => {
  assert.equal(createRedaction().scrub("the user is a", ["cookie", "a"]), "the user is a");
});

const copies = [
  { name: "the whole value", value: "Bearer abc.def.ghi", shown: "<redacted>" },
  { name: "the token alone", value: "abc.def.ghi", shown: "<redacted>" },
  { name: "a token inside another text", value: "t=secret-token-0123;x", shown: "t=<redacted>;x" },
  { name: "the value of one cookie", value: "0123456789abcdef", shown: "<redacted>" },
  { name: "another value", value: "Bearer", shown: "Bearer" },
  { name: "a word that a secret contains", value: "abc", shown: "abc" },
];
for (const { name, value, shown } of copies) {
  test(`a header that copies a sensitive one is redacted: ${name}`, () => {
    const redaction = createRedaction();
    const sensitive = [
      "authorization",
      "Bearer abc.def.ghi",
      "x-api-key",
      "secret-token-0123",
      "cookie",
      "a=b; sid=0123456789abcdef",
    ];
    assert.equal(redaction.headers(["x-copy", value, ...sensitive])["x-copy"], shown);
    // Also where only the values are left.
    assert.equal(redaction.headers(["x-copy", value], redaction.secrets(sensitive))["x-copy"], shown);
  });
}

test("a name that differs by underscores is as sensitive", () => {
  assert.equal(createRedaction().isSensitive("X_Api_Key"), true);
  assert.equal(createRedaction().isSensitive("x_other"), false);
});

const queries = [
  ["a=1&access_token=x", "a=1&access_token=<redacted>"],
  ["ACCESS_TOKEN=x", "ACCESS_TOKEN=<redacted>"],
  ["access%5Ftoken=x", "access%5Ftoken=<redacted>"],
  ["key=x&monkey=y", "key=<redacted>&monkey=y"],
  ["token=x", "token=x"],
  ["state=1&code=x", "state=1&code=<redacted>"],
  ["", ""],
  ["%zz=1", "%zz=1"],
] as const;
for (const [given, expected] of queries) {
  test(`the query ${JSON.stringify(given)} shows as ${JSON.stringify(expected)}`, () => {
    assert.equal(redactQuery(given), expected);
  });
}

test("parameters that a policy read its credential from are hidden too", () => {
  assert.equal(redactQuery("token=x&a=1", ["token"]), "token=<redacted>&a=1");
});

test("headers and parameters that the configuration reads credentials from are hidden from then on", () => {
  const redaction = createRedaction();
  assert.equal(redaction.query("team=x"), "team=x");
  redaction.hideAlso({ headers: ["X-Team-Key"], parameters: ["team"] });
  assert.equal(redaction.query("team=x&a=1"), "team=<redacted>&a=1");
  assert.deepEqual({ ...redaction.headers(["x-team-key", "x"]) }, { "x-team-key": "<redacted>" });
});

test("headers that are URLs keep their credentials to themselves", () => {
  const shown = createRedaction().headers(["location", "/cb?state=1&code=x#access_token=y", "x-url", "/cb?code=x"]);
  assert.deepEqual(
    { ...shown },
    { location: "/cb?state=1&code=<redacted>#access_token=<redacted>", "x-url": "/cb?code=x" },
  );
});

test("one cookie of several is scrubbed too, and words are not", () => {
  const pairs = ["cookie", "theme=dark; sid=0123456789abcdef"];
  assert.equal(createRedaction().scrub("dark 0123456789abcdef", pairs), "dark <redacted>");
});

const urls = [
  ["http://host.test/a?key=x&y=z#end", "http://host.test/a?key=<redacted>&y=<redacted>#end"],
  ["https://me:secret@host.test/", "https://<redacted>@host.test/"],
  ["https://host.test/a@b?", "https://host.test/a@b?"],
  ["is a?b=c", "is a?b=c"],
] as const;
for (const [given, expected] of urls) {
  test(`the URL ${given} shows as ${expected}`, () => {
    assert.equal(shownUrl(given), expected);
  });
}

const form = "application/x-www-form-urlencoded";
const bodies = [
  {
    name: "a token request",
    type: form,
    body: "grant_type=authorization_code&code=c0de&code_verifier=v&client_secret=s&client_id=i",
  },
  {
    name: "a token response",
    type: "application/json",
    body: '{"access_token": "t0ken", "refresh_token":"r\\"x", "expires_in": 3600}',
  },
  {
    name: "a token response that was cut off",
    type: "application/json",
    body: '{"token_type":"Bearer","access_token":"t0ken',
  },
  { name: "an event stream with a token", type: "text/event-stream", body: 'data: {"id_token":"t0ken"}\n\n' },
];
for (const { name, type, body } of bodies) {
  test(`the secrets in ${name} are hidden and the rest stays`, () => {
    const shown = redactBody(Buffer.from(body), type).toString();
    assert.match(shown, /<redacted>/);
    assert.doesNotMatch(shown, /t0ken|c0de|r\\"x|client_secret=s/);
    for (const kept of ["grant_type=authorization_code", '"expires_in": 3600', '"token_type":"Bearer"'])
      if (body.includes(kept)) assert.ok(shown.includes(kept));
  });
}

test("bodies without secrets, and bytes that are no text, pass unchanged", () => {
  const bytes = Buffer.from([0, 255, 254, 10]);
  assert.equal(redactBody(bytes, "image/png"), bytes);
  assert.equal(redactBody(bytes, "application/json"), bytes);
  const json = Buffer.from('{"code":"not a credential in JSON","name":"ü"}');
  assert.equal(redactBody(json, "application/json").toString(), json.toString());
});
