/** Services that answer every request with the given response. */
import type { Fetch } from "../../src/http/fetch.ts";
import { HeaderList } from "../../src/http/headers.ts";

export function fetched(body: string | Buffer, status = 200): Fetch {
  const response = { status, headers: new HeaderList(["content-type", "application/json"]), body: Buffer.from(body) };
  return async () => response;
}
