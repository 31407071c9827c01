"""Recomputes the ICRC of every RoCEv2 packet over IPv4 in pcap files, with scapy's code.

usage: icrc.py FILE...
Prints one line of JSON: {"FILE": {"checked": n, "other": n, "wrong": [frame number, ...]}, ...}
"other" counts frames that scapy can say nothing about: IPv6, or no packet to UDP port 4791.
"""
import json
import sys

from scapy.contrib.roce import BTH
from scapy.layers.inet import IP, UDP
from scapy.utils import PcapReader


def check(name):
    result = {"checked": 0, "other": 0, "wrong": []}
    with PcapReader(name) as frames:
        for number, frame in enumerate(frames, 1):
            if not (IP in frame and UDP in frame and BTH in frame):
                result["other"] += 1
                continue
            result["checked"] += 1
            # On the wire: the last four bytes of what the UDP length covers.
            ip = bytes(frame[IP])[: frame[IP].len]
            if frame[BTH].compute_icrc(None) != ip[-4:]:
                result["wrong"].append(number)
    return result


print(json.dumps({name: check(name) for name in sys.argv[1:]}))
