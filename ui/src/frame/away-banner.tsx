/**
 * Shows a banner if the gateway is unavailable or the user is signed out. It explains that the page shows old data.
 */
import { useEffect, useState } from "preact/hooks";
import { ageText } from "../../../src/base/format.ts";
import { isSignedOut, unavailableSince } from "../data/connection.ts";

const SECOND_MS = 1_000;

export function AwayBanner() {
  const since = unavailableSince.value;
  const [now, setNow] = useState(Date.now());
  useEffect(() => {
    if (since === undefined) return undefined;
    setNow(Date.now());
    const timer = setInterval(() => setNow(Date.now()), SECOND_MS);
    return () => clearInterval(timer);
  }, [since]);
  if (since === undefined && isSignedOut.value)
    return (
      <div class="away" role="alert">
        <strong>You are signed out.</strong> <span>This page shows what was known before.</span>{" "}
        <button type="button" class="button" onClick={() => location.reload()}>
          Sign in
        </button>
      </div>
    );
  if (since === undefined) return null;
  return (
    <div class="away" role="alert">
      <strong>The gateway does not respond.</strong>{" "}
      <span>This page shows what was known before and reconnects by itself.</span>{" "}
      <span aria-hidden="true">Tried for {ageText(Math.max(0, now - since))}.</span>
    </div>
  );
}
