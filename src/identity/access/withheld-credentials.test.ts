import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { HeaderList } from "../../http/headers.ts";
import { withholdOwnCookies } from "./withheld-credentials.ts";

test("backends receive every other cookie and none of the gateway's [D31]", () => {
  const name = fc.constantFrom("a", "gateway", "gatewayx", "my_gateway_", "gateway_", "gateway_session_1", "__Host-a");
  const ours = fc.constantFrom("__Host-gateway_session_1", "gateway_signin_1_0", "gateway_connect_abc", "gateway_");
  const pairs = fc.array(fc.tuple(fc.oneof(name, ours), fc.constantFrom("", "1", "gateway_x", "a=b")), {
    maxLength: 12,
  });
  fc.assert(
    fc.property(pairs, fc.boolean(), (cookies, isSplit) => {
      const texts = cookies.map(([key, value]) => `${key}=${value}`);
      const headers = new HeaderList([]);
      if (isSplit) for (const text of texts) headers.add("cookie", text);
      else if (texts.length > 0) headers.add("cookie", texts.join("; "));
      withholdOwnCookies(headers);
      const left = headers.getAll("cookie").flatMap((line) => line.split("; "));
      assert.deepEqual(
        left,
        texts.filter((text) => !/^(?:__Host-)?gateway_/.test(text)),
      );
    }),
    { seed: 1 },
  );
});
