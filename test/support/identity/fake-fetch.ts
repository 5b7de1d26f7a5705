/**
 * A fake fetch for identity providers in unit tests. It responds by URL, counts requests, and can be made
 * unavailable.
 */
import { type Fetch, FetchError, type FetchRequest, type FetchResponse } from "../../../src/http/fetch.ts";
import { HeaderList } from "../../../src/http/headers.ts";

export interface Answer {
  readonly status?: number;
  readonly headers?: Readonly<Record<string, string>>;
  /** Text as it is; anything else as JSON. */
  readonly body?: unknown;
}

export interface FakeFetch {
  readonly fetch: Fetch;
  readonly requests: FetchRequest[];
  /** What each URL answers; a function sees the request and may wait. */
  readonly answers: Map<string, Answer | ((request: FetchRequest) => Answer | Promise<Answer>)>;
  /** While true, no connection is made. */
  down: boolean;
}

export function createFakeFetch(answers: Readonly<Record<string, Answer>> = {}): FakeFetch {
  const fake: FakeFetch = {
    requests: [],
    answers: new Map(Object.entries(answers)),
    down: false,
    async fetch(request) {
      fake.requests.push(request);
      if (fake.down) throw new FetchError("network", "connect ECONNREFUSED");
      const answer = fake.answers.get(request.url);
      return response(
        typeof answer === "function" ? await answer(request) : (answer ?? { status: 404, body: "not found" }),
      );
    },
  };
  return fake;
}

function response({ status = 200, headers = {}, body = "" }: Answer): FetchResponse {
  const text = typeof body === "string" ? body : JSON.stringify(body);
  return {
    status,
    headers: HeaderList.of({ "content-type": "application/json", ...headers }),
    body: Buffer.from(text),
  };
}
