/**
 * Answers of a rate limit service: whatever numbers and names it sends, clients get plain whole numbers and header lines
 * that cannot frame or break a message.
 */

import { parseServiceResponse, withoutVendorHeader } from "../../../src/policies/rate-limit/global-limit.ts";
import type { RlsHeader, RlsResponse } from "../../../src/policies/rate-limit/rls-client.ts";
import type { Random } from "../../support/random.ts";
import { type Case, defineTarget, expect } from "../target.ts";

type Header = { readonly key: string; readonly value: string; readonly raw: Buffer };
type Status = {
  readonly code: number;
  readonly limit: number;
  readonly unit: number;
  readonly left: number;
  readonly seconds: number;
  readonly nanos: number;
  readonly has: number;
};
type Input = {
  readonly code: number;
  readonly statuses: readonly Status[];
  readonly response: readonly Header[];
  readonly request: readonly Header[];
  readonly body: Buffer;
};

const unsigned = (value: Case): number =>
  typeof value === "number" && Number.isFinite(value) ? Math.trunc(Math.abs(value)) % 2 ** 32 : 0;
const signed = (value: Case): number =>
  typeof value === "number" && Number.isFinite(value) ? Math.trunc(value) | 0 : 0;
const long = (value: Case): number =>
  typeof value === "number" && Number.isFinite(value) ? Math.max(-9.2e18, Math.min(9.2e18, Math.trunc(value))) : 0;

/** As protobuf would decode it: the types are right, the values are anything. */
function decoded({ code, statuses, response, request, body }: Input): RlsResponse {
  const headers = (list: readonly Header[]): RlsHeader[] =>
    list.map(({ key, value, raw }) => ({ key, value, rawValue: raw }));
  return {
    overallCode: signed(code),
    statuses: statuses.map((one) => ({
      code: signed(one.code),
      currentLimit:
        unsigned(one.has) % 2 === 0 ? { requestsPerUnit: unsigned(one.limit), unit: signed(one.unit) } : null,
      limitRemaining: unsigned(one.left),
      durationUntilReset: unsigned(one.has) % 3 === 0 ? { seconds: long(one.seconds), nanos: signed(one.nanos) } : null,
    })),
    responseHeadersToAdd: headers(response),
    requestHeadersToAdd: headers(request),
    rawBody: body,
  };
}

function checkHeaders(headers: Readonly<Record<string, string>>): void {
  for (const [name, value] of Object.entries(headers)) {
    expect(/^[!#$%&'*+\-.^_`|~0-9a-z]+$/.test(name), `the name ${JSON.stringify(name)}`);
    for (let i = 0; i < value.length; i++) {
      const code = value.charCodeAt(i);
      expect(code === 9 || (code >= 32 && code !== 127 && code < 256), `${name} holds the character ${code}`);
    }
    expect(
      !/^(?:connection|content-length|transfer-encoding|host|upgrade|te|trailer|keep-alive)$/.test(name),
      `${name} was taken`,
    );
  }
}

const NAMES = [
  "x-a",
  "X-B",
  "content-length",
  "Transfer-Encoding",
  "x-ratelimit-limit",
  "x-ratelimit-remaining",
  "x-ratelimit-reset",
  "X-RateLimit-Reset",
  "x-vendor-ratelimited",
  "a b",
  "",
  "__proto__",
  "host",
  "é",
  "x:y",
];
const VALUES = [
  "1",
  "10",
  "10, 10;w=60",
  "0",
  "-1",
  "1e9",
  "99999999999999999999999",
  "",
  "a\r\nb",
  "\0",
  "é",
  "😀",
  "0x10",
  " 5",
  "abc",
  "NaN",
  "Infinity",
];
const NUMBERS = [0, 1, -1, 2, 60, 1e9, 2 ** 31, 2 ** 32 - 1, -(2 ** 31), 9.2e18, -9.2e18, 1.5];

function generate(random: Random): Input {
  const headers = (): Header[] =>
    random.list(4, () => ({
      key: random.pick(NAMES),
      value: random.oneIn(4) ? "" : random.pick(VALUES),
      raw: Buffer.from(random.pick(VALUES)),
    }));
  return {
    code: random.int(4),
    statuses: random.list(3, () => ({
      code: random.int(3),
      limit: random.pick(NUMBERS),
      unit: random.int(9),
      left: random.pick(NUMBERS),
      seconds: random.pick(NUMBERS),
      nanos: random.pick(NUMBERS),
      has: random.int(6),
    })),
    response: headers(),
    request: headers(),
    body: Buffer.from(random.pick(["", "no", "\xff"]), "latin1"),
  };
}

export const rateLimitAnswers = defineTarget<Input>({
  name: "rate-limit-answers",
  seeds: [
    {
      code: 1,
      statuses: [{ code: 1, limit: 10, unit: 2, left: 5, seconds: 3, nanos: 1, has: 0 }],
      response: [{ key: "x-ratelimit-limit", value: "10, 10;w=60", raw: Buffer.alloc(0) }],
      request: [],
      body: Buffer.alloc(0),
    },
  ],
  smokeCases: 12_000,
  generate,
  run(input) {
    const { reading, responseHeaders, requestHeaders, body } = parseServiceResponse(decoded(input));
    checkHeaders(responseHeaders);
    checkHeaders(requestHeaders);
    expect(!("x-vendor-ratelimited" in withoutVendorHeader(responseHeaders)), "the vendor's header stayed");
    if (reading === undefined) return `no reading ${Object.keys(responseHeaders).length} ${body === undefined}`;
    const { limit, remaining, resetSeconds, share } = reading;
    checkHeaders({ limit });
    expect(/^[0-9]+$/.test(String(remaining)), `remaining is ${remaining}`);
    expect(/^[0-9]+$/.test(String(resetSeconds)) && resetSeconds >= 1, `reset is ${resetSeconds}`);
    expect(share >= 0 && share <= 1, `the share is ${share}`);
    expect(/^\s*[0-9]/.test(limit), `the limit is ${JSON.stringify(limit)}`);
    return `${share === 0} ${share === 1} ${limit.includes("w")} ${resetSeconds === 1} ${Object.keys(responseHeaders).length}`;
  },
});
