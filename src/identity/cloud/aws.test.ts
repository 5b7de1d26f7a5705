import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { fakeClock } from "../../../test/support/fake-clock.ts";
import type { FetchRequest, FetchResponse } from "../../http/fetch.ts";
import { HeaderList } from "../../http/headers.ts";
import { obtainAwsKeys } from "./aws.ts";

const folder = mkdtempSync(join(tmpdir(), "aws-keys-"));
after(() => rmSync(folder, { recursive: true, force: true }));
const shared = join(folder, "credentials");
const identity = join(folder, "identity");
writeFileSync(
  shared,
  "# a comment\r\n[default]\r\naws_access_key_id = DEF\r\naws_secret_access_key=def=secret\r\n\n[ work ]\naws_access_key_id=WORK\naws_secret_access_key=w\naws_session_token = t\n[sso]\nsso_session=x\n",
);
writeFileSync(identity, "the-identity\n");

const expiration = "2026-01-01T01:00:00Z";
const remote = { AccessKeyId: "R", SecretAccessKey: "r", Token: "tok", Expiration: expiration };

/** Answers by the end of the URL. */
function obtain(
  variables: Record<string, string>,
  answers: Record<string, string | number> = {},
  profile: string | undefined = undefined,
) {
  const requests: FetchRequest[] = [];
  const fetch = (request: FetchRequest): Promise<FetchResponse> => {
    requests.push(request);
    const found = Object.entries(answers).find(([end]) => request.url.endsWith(end))?.[1];
    if (found === undefined) return Promise.reject(new Error("no route to host"));
    const status = typeof found === "number" ? found : 200;
    return Promise.resolve({ status, headers: new HeaderList(), body: Buffer.from(String(found)) });
  };
  const lease = obtainAwsKeys({ profile, region: "eu-west-1", variables, clock: fakeClock(), fetch });
  return { lease, requests };
}

test("keys in the environment come first", async () => {
  const { lease, requests } = obtain({
    AWS_ACCESS_KEY_ID: "E",
    AWS_SECRET_ACCESS_KEY: "e",
    AWS_SESSION_TOKEN: "t",
    AWS_SHARED_CREDENTIALS_FILE: shared,
  });
  assert.deepEqual((await lease).value, { accessKeyId: "E", secretAccessKey: "e", sessionToken: "t" });
  assert.equal(requests.length, 0);
});

test("then the shared credentials file, the profile by name or default", async () => {
  const file = { AWS_SHARED_CREDENTIALS_FILE: shared };
  assert.equal((await obtain(file).lease).value.secretAccessKey, "def=secret");
  assert.deepEqual((await obtain({ ...file, AWS_PROFILE: "work" }).lease).value, {
    accessKeyId: "WORK",
    secretAccessKey: "w",
    sessionToken: "t",
  });
  assert.equal(
    (await obtain({ ...file, AWS_ACCESS_KEY_ID: "E", AWS_SECRET_ACCESS_KEY: "e" }, {}, "work").lease).value.accessKeyId,
    "WORK",
  );
});

test("a profile that is named and has no keys is an error that says what is supported, and nothing else is tried", async () => {
  for (const name of ["sso", "nobody"]) {
    const { lease, requests } = obtain({ AWS_SHARED_CREDENTIALS_FILE: shared }, {}, name);
    await assert.rejects(lease, /aws_access_key_id.*credential_process and role_arn are not supported/);
    assert.equal(requests.length, 0);
  }
});

const web = {
  AWS_WEB_IDENTITY_TOKEN_FILE: identity,
  AWS_ROLE_ARN: "arn:aws:iam::1:role/r",
  AWS_SHARED_CREDENTIALS_FILE: join(folder, "none"),
};
const stsJson = JSON.stringify({
  AssumeRoleWithWebIdentityResponse: {
    AssumeRoleWithWebIdentityResult: {
      Credentials: { AccessKeyId: "R", SecretAccessKey: "r", SessionToken: "tok", Expiration: 1767229200 },
    },
  },
});
const stsXml = `<A><Credentials><AccessKeyId>R</AccessKeyId><SecretAccessKey>r</SecretAccessKey><SessionToken>tok</SessionToken><Expiration>${expiration}</Expiration></Credentials></A>`;
for (const [form, answer] of [
  ["JSON", stsJson],
  ["XML", stsXml],
] as const) {
  test(`a web identity is exchanged at the region's token service, which answers in ${form}`, async () => {
    const { lease, requests } = obtain(web, { "amazonaws.com/": answer });
    assert.deepEqual(await lease, {
      value: { accessKeyId: "R", secretAccessKey: "r", sessionToken: "tok" },
      expiresAtMs: Date.parse(expiration),
    });
    assert.equal(requests[0]?.url, "https://sts.eu-west-1.amazonaws.com/");
    const form = new URLSearchParams(requests[0]?.body?.toString());
    assert.equal(form.get("WebIdentityToken"), "the-identity");
    assert.equal(form.get("RoleArn"), web.AWS_ROLE_ARN);
  });
}

test("the container's credential service is called with its token", async () => {
  const { lease, requests } = obtain(
    { AWS_CONTAINER_CREDENTIALS_RELATIVE_URI: "/v2/x", AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE: identity },
    { "/v2/x": JSON.stringify(remote) },
  );
  assert.equal((await lease).value.sessionToken, "tok");
  assert.equal(requests[0]?.url, "http://169.254.170.2/v2/x");
  assert.equal(requests[0]?.headers?.authorization, "the-identity");
});

test("a container's address outside the machine must be encrypted", async () => {
  const { lease, requests } = obtain({ AWS_CONTAINER_CREDENTIALS_FULL_URI: "http://elsewhere.example/x" });
  await assert.rejects(lease, /must be https/);
  assert.equal(requests.length, 0);
});

test("the instance's metadata service is called with a session token, version 2 only", async () => {
  const { lease, requests } = obtain(
    {},
    { "/api/token": "session", "/security-credentials/": "my-role\n", "/my-role": JSON.stringify(remote) },
  );
  assert.equal((await lease).value.accessKeyId, "R");
  assert.deepEqual(
    requests.map(({ method, headers }) => [method ?? "GET", headers?.["x-aws-ec2-metadata-token"]]),
    [
      ["PUT", undefined],
      ["GET", "session"],
      ["GET", "session"],
    ],
  );
});

const failing: [
  name: string,
  variables: Record<string, string>,
  answers: Record<string, string | number>,
  message: RegExp,
][] = [
  ["nothing anywhere", {}, {}, /no AWS credentials found \(.*\); supported are AWS_ACCESS_KEY_ID/],
  [
    "nothing, and the instance switched off",
    { AWS_EC2_METADATA_DISABLED: "true" },
    {},
    /supported are AWS_ACCESS_KEY_ID/,
  ],
  ["a token service that refuses", web, { "amazonaws.com/": 403 }, /token service answered with status 403/],
  ["a token service that redirects", web, { "amazonaws.com/": 302 }, /status 302/],
  ["a token service that makes no sense", web, { "amazonaws.com/": "{}" }, /answered without/],
  ["an identity file that is gone", { ...web, AWS_WEB_IDENTITY_TOKEN_FILE: join(folder, "gone") }, {}, /ENOENT/],
  [
    "keys without an end",
    { AWS_CONTAINER_CREDENTIALS_RELATIVE_URI: "/x" },
    { "/x": JSON.stringify({ ...remote, Expiration: undefined }) },
    /answered without/,
  ],
];
for (const [name, variables, answers, message] of failing) {
  test(`${name}: the error says so`, () => assert.rejects(obtain(variables, answers).lease, message));
}
