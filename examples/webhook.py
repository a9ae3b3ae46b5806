#!/usr/bin/env python3
"""A webhook server for docs/extending.md: webhook.py PORT CERTIFICATE KEY.

/check refuses ConfigMaps without an owner, /complete adds a label to them, /convert turns Gadgets from v1 into v2 and back.
"""

import base64
import http.server
import json
import ssl
import sys


def check(request):
    if "owner" in (request["object"]["metadata"].get("labels") or {}):
        return {"allowed": True}
    return {"allowed": False, "status": {"code": 403, "message": "who owns it? Say so with the label owner"}}


def complete(request):
    labels = dict(request["object"]["metadata"].get("labels") or {}, checked="yes")
    patch = [{"op": "add", "path": "/metadata/labels", "value": labels}]
    return {"allowed": True, "patchType": "JSONPatch", "patch": base64.b64encode(json.dumps(patch).encode()).decode()}


def convert(request):
    wanted = request["desiredAPIVersion"]
    for gadget in request["objects"]:
        gadget["apiVersion"] = wanted
        spec = gadget["spec"]
        if wanted.endswith("/v2"):
            host, _, port = spec.pop("address", "").partition(":")
            gadget["spec"] = {"host": host, "port": int(port or 0)}
        else:
            gadget["spec"] = {"address": "%s:%d" % (spec.get("host", ""), spec.get("port", 0))}
    return {"result": {"status": "Success"}, "convertedObjects": request["objects"]}


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        answer = {"/check": check, "/complete": complete, "/convert": convert}[self.path.split("?")[0]]
        request = review.pop("request")
        review["response"] = dict(answer(request), uid=request["uid"])
        body = json.dumps(review).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


server = http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(sys.argv[2], sys.argv[3])
server.socket = context.wrap_socket(server.socket, server_side=True)
server.serve_forever()
