"""Judges tokens with PyJWT. Reads a configuration and then tokens, one JSON text for each line, and prints a verdict for each token."""
import datetime
import json
import sys

try:
    import jwt
    import jwt.api_jwt
    from cryptography import __version__ as cryptography_version
except ImportError as error:
    print(json.dumps({"missing": str(error)}), flush=True)
    sys.exit(0)

print(json.dumps({"version": f"PyJWT {jwt.__version__}, cryptography {cryptography_version}"}), flush=True)
config = json.loads(sys.stdin.readline())


class Clock(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls.fromtimestamp(config["now"], tz)


jwt.api_jwt.datetime = Clock
judge = jwt.PyJWT(options={"enforce_minimum_key_length": True})


def read_keys(key_set):
    keys = []
    for one in key_set["keys"]:
        if one.get("use", "sig") != "sig" or "verify" not in one.get("key_ops", ["verify"]):
            continue
        try:
            key = jwt.PyJWK.from_dict(one).key
        except jwt.PyJWTError:
            continue
        if not isinstance(key, bytes):
            keys.append((one.get("kid"), [one["alg"]] if "alg" in one else config["algorithms"], key))
    return keys


key_sets = [read_keys(key_set) for key_set in config["sets"]]


def verdict(token, keys):
    kid = jwt.get_unverified_header(token).get("kid")
    problem = jwt.InvalidKeyError("no key")
    for name, algorithms, key in keys:
        if kid is not None and kid != name:
            continue
        try:
            judge.decode(
                token,
                key,
                algorithms=algorithms,
                audience=config["audiences"],
                issuer=config["issuer"],
                leeway=config["leeway"],
                options={"require": ["exp"]},
            )
            return "valid"
        except Exception as error:
            problem = error
    raise problem


for line in sys.stdin:
    number, token = json.loads(line)
    try:
        print(verdict(token, key_sets[number]), flush=False)
    except Exception as error:
        print(type(error).__name__, flush=False)
