/**
 * The gateway's own part of a login, as far as clients see it: whether its document is at the address that `resource`
 * names, and whether clients in browsers may call it.
 */
import { detailOf } from "../providers/provider-error.ts";
import { failed, LEG_LIMITS, type LoginCheckOptions, type LoginLeg, notChecked, textOf } from "./login-leg.ts";
import { resourceMetadataUrl } from "./well-known.ts";

export async function* gatewayLegs(options: LoginCheckOptions, hasCors: boolean): AsyncGenerator<LoginLeg> {
  yield await resourceLeg(options);
  yield hasCors
    ? { leg: "cors", ok: true, message: "the route has a `cors` policy" }
    : {
        leg: "cors",
        ok: undefined,
        message: "the route has no `cors` policy: clients that run in a browser cannot connect",
        mend: "add `cors` with their origins to the route, if there are any",
      };
}

async function resourceLeg({ policy, fetch }: LoginCheckOptions): Promise<LoginLeg> {
  const { resource } = policy.resourceMetadata;
  const url = resourceMetadataUrl(resource);
  const mend = "set `resource` to the address that clients use for this gateway";
  try {
    const response = await fetch({ url, ...LEG_LIMITS });
    if (response.status !== 200)
      return failed("resource", `${url} returned status ${response.status}: ${textOf(response)}`, mend);
    const document = JSON.parse(response.body.toString("utf8")) as { readonly resource?: unknown } | null;
    if (document?.resource !== resource)
      return failed("resource", `${url} speaks of ${String(document?.resource)}, expected ${resource}`, mend);
    return { leg: "resource", ok: true, message: `${url} is the gateway's document` };
  } catch (error) {
    if (error instanceof SyntaxError) return failed("resource", `${url} is not JSON`, mend);
    return notChecked("resource", `no gateway answers at ${url} (${detailOf(error)}); start it there`);
  }
}
